// link_simulator.hpp - a link of two engines in one thread: the real state machines
// and the real frames over pipes that deliver as much as a seeded generator says,
// and break where a test wants. The target's owner uses each block again the
// moment it is told of it, so a transfer that is done twice shows.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "protocol/initiator.hpp"
#include "protocol/target.hpp"

namespace mori::io_core::protocol {

constexpr uint64_t block_bytes = 128 * 1024;
constexpr std::byte reused{0xEE};

inline std::byte pattern(uint64_t of, uint64_t index) {
  return static_cast<std::byte>((of * 37 + index * 11 + index / 251) & 0x7F);
}

// One transfer and all that happened to it.
struct subject : transfer {
  uint64_t index = 0;
  std::vector<memory::piece> piece_store;
  std::vector<std::byte> metadata_store;
  int outcomes = 0;
  int releases = 0;
  int notifications = 0;
  mori_status status = -1;
  std::string text;
};

struct pipe {
  std::deque<std::byte> bytes;
};

// One stream with both of its ends.
struct wire_pair {
  wire_pair(const wire::agreement& a, const wire::agreement& b) : left(a), right(b) {}
  stream left, right;  // initiator's end, target's end
  pipe forward, backward;
};

struct simulation : initiator::host, target::host {
  explicit simulation(uint64_t seed, wire::security_mode with = wire::security_mode::mac,
                      size_t blocks = 8)
      : random(seed),
        mode(with),
        local(blocks * block_bytes),
        remote(blocks * block_bytes),
        asking(*this, {.peer = "target",
                       .chunk_bytes = 24 * 1024,
                       .peer_timeout_ns = 1'000'000'000,
                       .cancel_patience_ns = 100'000'000,
                       .max_retry_count = 1u << 30}),
        serving(*this, "initiator") {
    source.id = 1;
    source.begin = local.data();
    source.size_bytes = local.size();
    sink = std::make_shared<memory::region>();
    sink->id = 7;
    sink->begin = remote.data();
    sink->size_bytes = remote.size();
    sink->read_capability.fill(0x11);
    sink->write_capability.fill(0x22);
  }

  // --- Hosts.
  void on_outcome(transfer& what, mori_status status, std::string_view text) override {
    auto& of = static_cast<subject&>(what);
    ++of.outcomes;
    of.status = status;
    of.text = text;
    CHECK(what.pins == 0);
    if (status == MORI_OK && what.is_read) check_bytes(of, local, &memory::piece::local_offset);
    // The caller uses its memory again at once.
    if (!what.is_read)
      for (const memory::piece& each : what.pieces)
        std::memset(local.data() + each.local_offset, 0x55, each.bytes);
  }
  void on_released(transfer& what) override { ++static_cast<subject&>(what).releases; }
  void on_revoke(uint32_t region) override {
    revokes.push_back(region);
    asking.answer_revoke(region);
  }
  void on_attached(uint32_t region) override { attached.push_back(region); }
  std::shared_ptr<const memory::region> find_region(uint32_t id) override {
    return id == sink->id && !sink->revoked ? sink : nullptr;
  }
  std::string_view refusal() override { return refused; }
  void on_delivered(const delivery& what) override {
    subject& of = *subjects.at(what.uid);
    ++of.notifications;
    CHECK(what.total_bytes == of.total_bytes);
    CHECK(what.region == sink->id);
    CHECK(std::ranges::equal(what.metadata, of.metadata_store));
    if (of.is_read) return;
    check_bytes(of, remote, &memory::piece::remote_offset);
    for (const memory::piece& each : of.pieces)
      std::memset(remote.data() + each.remote_offset, static_cast<int>(reused), each.bytes);
  }
  void on_revoked(uint32_t region) override { revoked.push_back(region); }

  // --- Transfers. Each has a block of its own on either side.
  subject& make(bool is_read, uint64_t bytes, size_t piece_count = 1) {
    auto made = std::make_unique<subject>();
    subject& of = *made;
    of.index = subjects.size();
    REQUIRE((of.index + 1) * block_bytes <= local.size());
    of.is_read = is_read;
    of.notifies = true;
    of.uid = of.index;
    of.remote_region = sink->id;
    of.capability = is_read ? sink->read_capability : sink->write_capability;
    of.local = &source;
    of.priority = static_cast<uint8_t>(of.index % schedule::ranks);
    of.total_bytes = bytes;
    const uint64_t base = of.index * block_bytes;
    for (size_t i = 0; i < piece_count; ++i) {
      const uint64_t begin = bytes * i / piece_count, end = bytes * (i + 1) / piece_count;
      if (end > begin) of.piece_store.push_back({base + begin, base + begin, end - begin});
    }
    of.pieces = of.piece_store;
    of.metadata_store.assign(of.index % 3, static_cast<std::byte>(of.index));
    of.metadata = of.metadata_store;
    std::vector<std::byte>& from = is_read ? remote : local;
    for (uint64_t i = 0; i < bytes; ++i) from[base + i] = pattern(of.index, i);
    subjects[of.index] = &of;
    owners.push_back(std::move(made));
    return of;
  }
  void submit(subject& what) { asking.submit(what, now); }

  void check_bytes(const subject& of, const std::vector<std::byte>& in,
                   uint64_t memory::piece::* offset) {
    const uint64_t base = of.index * block_bytes;
    for (const memory::piece& each : of.pieces)
      for (uint64_t i = 0; i < each.bytes; ++i)
        if (in[each.*offset + i] != pattern(of.index, each.*offset - base + i)) {
          FAIL("transfer ", of.index, ": byte ", each.*offset - base + i, " is wrong");
          return;
        }
  }

  // --- Connections.
  static wire::agreement agreement(wire::security_mode mode, uint8_t there, uint8_t back) {
    wire::agreement made;
    made.mode = mode;
    std::memset(made.sending.data(), there, made.sending.size());
    std::memset(made.receiving.data(), back, made.receiving.size());
    return made;
  }
  std::unique_ptr<wire_pair> fresh_pair() {
    ++keys;
    const auto there = static_cast<uint8_t>(keys * 2), back = static_cast<uint8_t>(keys * 2 + 1);
    return std::make_unique<wire_pair>(agreement(mode, there, back), agreement(mode, back, there));
  }
  void connect() {
    const uint64_t generation = asking.next_generation();
    lanes.push_back(fresh_pair());
    serving.on_control(lanes[0]->right, generation);
    asking.on_control(lanes[0]->left, now);
  }
  void connect_data() {
    lanes.push_back(fresh_pair());
    serving.add_data(lanes.back()->right);
    asking.add_data(lanes.back()->left);
  }
  // What is under way may still arrive in part; the target notices later, but before it resumes.
  void lose(const char* why) {
    ++losses;
    asking.on_lost(why);
    for (auto& each : lanes) deliver(*each, true, random() % (each->forward.bytes.size() + 1));
    serving.on_lost();
    lanes.clear();
  }

  // --- Movement. False: that end refused what came.
  bool deliver(wire_pair& on, bool forward, uint64_t bytes) {
    pipe& from = forward ? on.forward : on.backward;
    stream& to = forward ? on.right : on.left;
    while (bytes > 0) {
      std::array<iovec, 16> room;
      const size_t count = to.room(room);
      uint64_t taken = 0;
      for (size_t i = 0; i < count && bytes > 0; ++i) {
        const uint64_t part = std::min<uint64_t>(bytes, room[i].iov_len);
        std::copy_n(from.bytes.begin(), part, static_cast<std::byte*>(room[i].iov_base));
        from.bytes.erase(from.bytes.begin(), from.bytes.begin() + static_cast<ptrdiff_t>(part));
        taken += part;
        bytes -= part;
      }
      moved += taken;
      const base::status went =
          forward ? serving.receive(to, taken) : asking.receive(to, taken, now);
      if (!went) {
        refusal_text = went.error().text;
        return false;
      }
    }
    return true;
  }
  void send(stream& from, pipe& to, uint64_t most) {
    while (most > 0 && from.wants_write()) {
      std::array<iovec, 8> pieces;
      const size_t count = from.gather(pieces);
      uint64_t sent = 0;
      for (size_t i = 0; i < count && most > 0; ++i) {
        const uint64_t part = std::min<uint64_t>(most, pieces[i].iov_len);
        const auto* begin = static_cast<const std::byte*>(pieces[i].iov_base);
        to.bytes.insert(to.bytes.end(), begin, begin + part);
        sent += part;
        most -= part;
      }
      from.on_sent(sent);
    }
  }
  uint64_t some(uint64_t most) { return most == 0 ? 0 : 1 + random() % most; }

  // One turn in which something moves if anything can. Breaks when `moved` reaches cut_at.
  bool step() {
    if (lanes.empty()) connect();
    asking.pump(now);
    serving.pump();
    if (asking.is_ready() && asking.wants_data() && lanes.size() < 3) connect_data();
    const uint64_t before = moved;
    bool sound = true;
    for (size_t i = 0; i < lanes.size() && sound; ++i) {
      wire_pair& each = *lanes[i];
      send(each.left, each.forward, some(burst));
      send(each.right, each.backward, some(burst));
      for (const bool forward : {true, false}) {
        pipe& through = forward ? each.forward : each.backward;
        uint64_t bytes = std::min<uint64_t>(some(burst), through.bytes.size());
        if (random() % 4 == 0) bytes = 0;  // delay
        if (cut_at > moved) bytes = std::min(bytes, cut_at - moved);
        if (sound) sound = deliver(each, forward, bytes);
        if (sound && moved == cut_at) {
          cut_at = 0;
          lose("cut");
          return true;
        }
      }
    }
    now += 1000;
    if (!sound) lose(refusal_text.c_str());
    return moved != before;
  }
  // Until all transfers are released.
  void run() {
    for (int idle = 0; asking.has_work();) {
      idle = step() ? 0 : idle + 1;
      if (idle > 1000) FAIL("nothing moves any more; ", asking.count(), " transfers are left");
      if (idle > 1000) return;
    }
  }
  void check_end(const subject& of) {
    CHECK(of.outcomes == 1);
    CHECK(of.releases == 1);
    if (of.status == MORI_OK) CHECK(of.notifications == (of.notifies ? 1 : 0));
    if (of.status == MORI_OK && !of.is_read && of.notifies)
      for (const memory::piece& each : of.pieces)
        for (uint64_t i = 0; i < each.bytes; ++i)
          if (remote[each.remote_offset + i] != reused) {
            FAIL("transfer ", of.index, " was done again over a block that was reused");
            return;
          }
  }

  std::mt19937_64 random;
  wire::security_mode mode;
  std::vector<std::byte> local, remote;
  memory::region source;
  std::shared_ptr<memory::region> sink;
  std::map<uint64_t, subject*> subjects;
  std::vector<std::unique_ptr<subject>> owners;
  std::vector<std::unique_ptr<wire_pair>> lanes;
  std::vector<uint32_t> revokes, revoked, attached;
  std::string refused, refusal_text;
  uint64_t now = 1'000'000'000;
  uint64_t moved = 0;
  uint64_t cut_at = 0;
  uint64_t burst = 4096;
  int losses = 0;
  unsigned keys = 0;
  initiator asking;
  target serving;
};

}  // namespace mori::io_core::protocol
