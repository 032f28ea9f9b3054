// unique_id.cpp - see unique_id.hpp and identity.hpp.
#include <mori/link/unique_id.hpp>

#include <mori/base/log.hpp>
#include <mori/base/process.hpp>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>

#include "bootstrap/identity.hpp"
#include "wire/keyed_hash.hpp"

namespace mori::link {
namespace {

constexpr std::string_view magic = "MORI-ID";
constexpr uint8_t format_version = 1;
constexpr size_t checksum_bytes = 8;
constexpr size_t body_bytes = 128 - checksum_bytes;

std::array<uint8_t, checksum_bytes> checksum_of(byte_span body) {
  std::array<uint8_t, 16> hash{};
  keyed_hash({}, "mori-link id", {&body, 1}, hash);
  std::array<uint8_t, checksum_bytes> sum{};
  std::copy_n(hash.begin(), sum.size(), sum.begin());
  return sum;
}

struct waiting_listeners {
  uint32_t generation = base::fork_generation();
  std::mutex lock;
  struct entry {
    unique_id id;
    base::unique_fd fd;
  };
  std::deque<entry> entries;  // oldest first
};

// A fork()ed child starts afresh: its copies are closed, and the parent's lock
// may have been held. The old object is left alone.
waiting_listeners& listeners() {
  static std::atomic<waiting_listeners*> current{new waiting_listeners};
  waiting_listeners* mine = current.load();
  while (mine->generation != base::fork_generation()) {
    auto* fresh = new waiting_listeners;
    if (current.compare_exchange_strong(mine, fresh)) return *fresh;
    delete fresh;
  }
  return *mine;
}

}  // namespace

unique_id encode_identity(const identity& what) {
  byte_writer out;
  out.raw(as_bytes(magic));
  out.u8(format_version);
  out.raw(std::as_bytes(std::span(what.secret)));
  out.u64(what.job);
  out.u16(what.addresses.empty() ? uint16_t{0} : what.addresses[0].port);
  out.u8(static_cast<uint8_t>(what.addresses.size()));
  out.u8(0);
  for (size_t i = 0; i < tcp::max_addresses; ++i) {
    const tcp::address a = i < what.addresses.size() ? what.addresses[i] : tcp::address{0, {}, 0};
    out.u8(a.family);
    out.raw(std::as_bytes(std::span(a.bytes)));
  }
  const auto sum = checksum_of(out.view());
  out.raw(std::as_bytes(std::span(sum)));
  unique_id id;
  std::memcpy(id.bytes.data(), out.view().data(), id.bytes.size());
  return id;
}

base::result<identity> decode_identity(const unique_id& id) {
  if (std::ranges::all_of(id.bytes, [](uint8_t byte) { return byte == 0; }))
    return base::fail(MORI_E_INVALID, "the unique id is all zero: nobody made it");
  const byte_span all = std::as_bytes(std::span(id.bytes));
  byte_reader in(all);
  if (!std::ranges::equal(in.raw(magic.size()), as_bytes(magic)))
    return base::fail(MORI_E_INVALID, "the unique id does not begin with '{}': no unique id",
                      magic);
  const auto sum = checksum_of(all.first(body_bytes));
  if (!std::ranges::equal(all.last(checksum_bytes), std::as_bytes(std::span(sum))))
    return base::fail(MORI_E_INVALID, "the unique id is damaged: its checksum does not match");
  if (const uint8_t version = in.u8(); version != format_version)
    return base::fail(MORI_E_VERSION, "the unique id has format {}, this library knows {}", version,
                      format_version);
  identity what;
  std::memcpy(what.secret.data(), in.raw(what.secret.size()).data(), what.secret.size());
  what.job = in.u64();
  const uint16_t port = in.u16();
  const size_t count = in.u8();
  in.u8();
  if (count == 0 || count > tcp::max_addresses || port == 0)
    return base::fail(MORI_E_INVALID, "the unique id has {} addresses (1 .. {}) and port {}", count,
                      tcp::max_addresses, port);
  for (size_t i = 0; i < count; ++i) {
    tcp::address a;
    a.family = in.u8();
    std::memcpy(a.bytes.data(), in.raw(a.bytes.size()).data(), a.bytes.size());
    a.port = port;
    if (a.family != 4 && a.family != 6)
      return base::fail(MORI_E_INVALID,
                        "address {} of the unique id has family {}, neither 4 nor 6", i, a.family);
    what.addresses.push_back(a);
  }
  return what;
}

base::result<unique_id> make_unique_id() {
  identity what;
  MORI_TRY(what.addresses, tcp::host_addresses());
  MORI_TRY(tcp::listener socket, tcp::listen_anywhere());
  for (tcp::address& a : what.addresses) a.port = socket.port;
  random_bytes(what.secret);
  std::array<uint8_t, 8> job{};
  random_bytes(job);
  std::memcpy(&what.job, job.data(), sizeof what.job);
  const unique_id id = encode_identity(what);
  wipe(what.secret);

  waiting_listeners& waiting = listeners();
  const std::lock_guard guard(waiting.lock);
  if (waiting.entries.size() >= max_waiting_listeners) {
    base::log(MORI_LOG_WARN, "{} unique ids wait for their group; the oldest is void now",
              waiting.entries.size());
    waiting.entries.pop_front();
  }
  waiting.entries.push_back({id, std::move(socket.fd)});
  return id;
}

base::unique_fd take_listener(const unique_id& id) {
  waiting_listeners& waiting = listeners();
  const std::lock_guard guard(waiting.lock);
  const auto at = std::ranges::find_if(
      waiting.entries, [&](const auto& entry) { return entry.id.bytes == id.bytes; });
  if (at == waiting.entries.end()) return {};
  base::unique_fd fd = std::move(at->fd);
  waiting.entries.erase(at);
  return fd;
}

}  // namespace mori::link
