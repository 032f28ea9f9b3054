// The rings and what PEs say to each other, without sockets and threads: random interleavings from
// a seed, damaged and contradictory frames, the bounds of everything.
#include "network_world.hpp"

#include <array>
#include <cstring>

namespace core = mori::shmem_core;
namespace api = mori::device_api;
using namespace mori::shmem_test;
using mori::link::byte_vector;

TEST_CASE("network: random programs over rings that are smaller than what is on its way") {
  const uint64_t first = first_seed();
  for (uint64_t seed = first; seed < first + seed_count(60); ++seed) {
    world_options with;
    with.seed = seed;
    with.pe_count = 2 + static_cast<int>(seed % 4);
    with.ring_count = 1 + static_cast<int>(seed % 3);
    with.producer_count = 1 + static_cast<int>(seed % 5);
    with.capacity = uint64_t{1} << (seed % 5);
    network_world world(with);
    REQUIRE_MESSAGE(world.run(), world.repeat(), ": nothing moves after ", world.turns());
    world.check_end();
  }
}

TEST_CASE("network: commands to a PE that is cut off do not complete, the others go on") {
  const uint64_t first = first_seed();
  for (uint64_t seed = first; seed < first + seed_count(40); ++seed) {
    world_options with;
    with.seed = seed;
    with.pe_count = 4;
    with.capacity = 64;
    with.operations = 30;
    network_world world(with);
    world.cut(static_cast<int>(seed % 4));
    // Producers that wait for that PE stay where they are: not all come to their end. That nothing
    // completes which must not is checked where completions are heard.
    CHECK_MESSAGE(!world.run(), world.repeat());
  }
}

namespace {

struct heard_of final : core::completions {
  void on_answer(const core::origin&, uint64_t value) override { answers.push_back(value); }
  void on_complete(const core::origin& of) override { complete.push_back(of.index); }
  std::vector<uint64_t> answers, complete;
};

// One end of a connection, and a heap of 64 words.
struct end {
  std::array<uint64_t, 64> heap{};
  mori_shmem_sync_v1 sync{};
  core::host_memory memory{sync};
  heard_of heard;
  core::conversation talk{memory, {reinterpret_cast<uint64_t>(heap.data()), sizeof heap}, heard};

  byte_vector say() {
    const auto frame = talk.next_frame();
    REQUIRE(static_cast<bool>(frame));
    byte_vector bytes(frame->text.begin(), frame->text.end());
    bytes.insert(bytes.end(), frame->bulk.begin(), frame->bulk.end());
    return bytes;
  }
  std::string hear(const byte_vector& bytes) {
    const auto outcome = talk.on_frame(bytes);
    return outcome ? "" : std::string(outcome.error().text);
  }
  std::string hear(const core::record& what, size_t data_bytes = 0) {
    byte_vector bytes;
    core::append(bytes, what);
    bytes.resize(bytes.size() + data_bytes);
    return hear(bytes);
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

api::command atomic(int32_t operation, uint64_t word, uint64_t value, bool wants_answer = true) {
  api::command made{};
  made.pe = 1;
  made.kind = MORI_SHMEM_COMMAND_ATOMIC;
  made.operation = static_cast<uint16_t>(operation);
  made.remote = word * 8;
  made.bytes = 8;
  made.signal = wants_answer ? 1 : 0;
  made.value = value;
  return made;
}

api::command get(uint64_t word, void* to, uint64_t bytes) {
  api::command made{};
  made.pe = 1;
  made.kind = MORI_SHMEM_COMMAND_GET;
  made.remote = word * 8;
  made.local = reinterpret_cast<uint64_t>(to);
  made.bytes = bytes;
  return made;
}

}  // namespace

TEST_CASE("network: answers come in the order of the commands, whatever their kinds") {
  end here, there;
  there.heap[3] = 40;
  uint64_t got[2] = {0, 0};
  there.heap[8] = 80;
  there.heap[9] = 90;
  REQUIRE(static_cast<bool>(here.talk.add(atomic(MORI_SHMEM_AMO_ADD, 3, 1, false), {0, 10})));
  REQUIRE(static_cast<bool>(here.talk.add(atomic(MORI_SHMEM_AMO_FETCH_ADD, 3, 2), {0, 11})));
  REQUIRE(static_cast<bool>(here.talk.add(get(8, got, 16), {0, 12})));
  REQUIRE(static_cast<bool>(here.talk.add(atomic(MORI_SHMEM_AMO_SWAP, 3, 5), {0, 13})));
  CHECK(here.talk.command_count() == 4);
  CHECK(there.hear(here.say()) == "");
  CHECK(there.heap[3] == 5);
  CHECK(here.heard.complete.empty());
  CHECK(here.hear(there.say()) == "");
  CHECK(here.heard.complete == std::vector<uint64_t>{10, 11, 12, 13});
  CHECK(here.heard.answers == std::vector<uint64_t>{41, 43});
  CHECK(got[0] == 80);
  CHECK(got[1] == 90);
  CHECK_FALSE(here.talk.wants_to_speak());
  CHECK_FALSE(there.talk.wants_to_speak());
}

TEST_CASE("network: every atomic of 4 and 8 bytes gives what the device function gives") {
  for (int32_t operation = 0; operation < 32; ++operation)
    for (const uint64_t bytes : {4, 8}) {
      CAPTURE(operation);
      end here, there;
      there.heap[2] = 0xf0f0f0f00f0f0f0f;
      auto what = atomic(operation, 2, 0x00ff00ff11223344);
      what.bytes = bytes;
      what.compare = bytes == 4 ? 0x0f0f0f0f : 0xf0f0f0f00f0f0f0f;
      const auto added = here.talk.add(what, {0, 0});
      REQUIRE(static_cast<bool>(added) == api::is_atomic_operation(operation));
      if (!added) continue;
      uint64_t word = there.heap[2], before = 0;
      const auto apply = [&]<class T>(T* at) {
        before =
            api::apply_atomic(at, api::atomic_request<T>{at, static_cast<T>(what.value), operation,
                                                         0, static_cast<T>(what.compare)});
      };
      if (bytes == 4)
        apply(reinterpret_cast<uint32_t*>(&word));
      else
        apply(&word);
      CHECK(there.hear(here.say()) == "");
      CHECK(here.hear(there.say()) == "");
      CHECK(there.heap[2] == word);
      CHECK(here.heard.answers == std::vector<uint64_t>{before});
    }
}

TEST_CASE("network: commands that make no sense are refused before anything is sent") {
  end here;
  const auto refused = [&](api::command what) {
    const auto outcome = here.talk.add(what, {0, 0});
    CHECK(here.talk.command_count() == 0);
    CHECK_FALSE(here.talk.wants_to_speak());
    return outcome ? std::string() : outcome.error().text;
  };
  api::command what = get(0, nullptr, 8);
  what.kind = 5;
  CHECK(contains(refused(what), "a command of kind 5"));
  CHECK(contains(refused(get(64, nullptr, 1)), "1 bytes at offset 0x200 of a heap of 0x200"));
  CHECK(contains(refused(get(63, nullptr, 9)), "9 bytes"));
  CHECK(contains(refused(get(0, nullptr, ~uint64_t{0})), "18446744073709551615 bytes"));
  CHECK(contains(refused(get(0, nullptr, 0)), "a command of 0 bytes"));
  what = atomic(MORI_SHMEM_AMO_ADD, 0, 1);
  what.remote = 4;
  CHECK(contains(refused(what), "atomic 4 on 8 bytes at offset 0x4"));
  what.bytes = 2;
  CHECK(contains(refused(what), "on 2 bytes"));
  what = get(0, nullptr, 17);
  what.kind = MORI_SHMEM_COMMAND_INLINE;
  CHECK(contains(refused(what), "an inline put of 17 bytes, the limit is 16"));
  what.bytes = 0;
  what.operation = 11;
  CHECK(contains(refused(what), "signal 11"));
  what.operation = MORI_SHMEM_SIGNAL_ADD;
  what.signal = 4;
  CHECK(contains(refused(what), "signal 10 at offset 0x4"));
  what.signal = 512;
  CHECK(contains(refused(what), "signal 10 at offset 0x200"));
}

TEST_CASE("network: a peer's nonsense changes nothing and names what was wrong") {
  using kind = core::record_kind;
  end here;
  const auto before = here.heap;
  byte_vector stump(31);
  CHECK(contains(here.hear(stump), "a record of 31 bytes, it has 32"));
  CHECK(contains(here.hear({.kind = kind::put, .bytes = 9}, 8), "announces 9 bytes"));
  CHECK(contains(here.hear({.kind = kind{77}}), "a record of kind 77"));
  CHECK(contains(here.hear({.kind = kind::put, .bytes = 8, .offset = 505}, 8), "offset 0x1f9"));
  CHECK(contains(here.hear({.kind = kind::put, .bytes = 8, .offset = ~uint64_t{0}}, 8),
                 "8 bytes at offset 0xffffffffffffffff"));
  CHECK(contains(here.hear({.kind = kind::get, .offset = 8, .value = ~uint64_t{0}}),
                 "18446744073709551615 bytes"));
  CHECK(contains(here.hear({.kind = kind::signal, .operation = 9, .is_last = 1, .offset = 4}),
                 "operation 9 on 8 bytes at offset 0x4"));
  CHECK(contains(here.hear({.kind = kind::signal, .operation = 4, .is_last = 1}), "operation 4"));
  CHECK(
      contains(here.hear({.kind = kind::atomic, .operation = 9, .word_bytes = 8}), "operation 9"));
  CHECK(contains(here.hear({.kind = kind::atomic, .operation = 4, .word_bytes = 3}), "3 bytes"));
  CHECK(contains(here.hear({.kind = kind::get, .bytes = 1, .value = 8}, 1), "1 bytes of data"));
  CHECK(contains(here.hear({.kind = kind::done, .value = 1}), "nobody waits for"));
  CHECK(contains(here.hear({.kind = kind::before, .value = 1}), "nobody waits for"));
  uint64_t to = 7;
  REQUIRE(static_cast<bool>(here.talk.add(get(0, &to, 8), {0, 0})));
  CHECK(contains(here.hear({.kind = kind::data, .is_last = 1, .bytes = 8}, 8), "nobody waits for"));
  (void)here.say();
  CHECK(contains(here.hear({.kind = kind::done, .value = 1}), "an answer of kind 16"));
  CHECK(contains(here.hear({.kind = kind::data, .is_last = 1, .bytes = 9}, 9),
                 "9 bytes of data for a get that wants 8 more"));
  CHECK(contains(here.hear({.kind = kind::data, .is_last = 1, .bytes = 4}, 4), "4 bytes of data"));
  CHECK(to == 7);
  CHECK(here.heap == before);
  CHECK(here.heard.complete.empty());
}

TEST_CASE("network: bulk goes to its place, by way of a buffer where it has to be proven first") {
  for (const bool in_place : {true, false}) {
    end here;
    core::conversation talk{here.memory,
                            {reinterpret_cast<uint64_t>(here.heap.data()), sizeof here.heap},
                            here.heard,
                            in_place};
    byte_vector text;
    core::append(text, {.kind = core::record_kind::put, .is_last = 1, .bytes = 16, .offset = 24});
    REQUIRE(static_cast<bool>(talk.on_frame(text, 16)));
    std::byte* const heap = reinterpret_cast<std::byte*>(here.heap.data());
    CHECK((talk.bulk_place() == heap + 24) == in_place);
    std::memset(talk.bulk_place(), 0x11, 16);
    CHECK(here.heap[3] == (in_place ? 0x1111111111111111 : 0));
    CHECK(talk.answer_count() == 0);
    REQUIRE(static_cast<bool>(talk.on_bulk()));
    CHECK(here.heap[2] == 0);
    CHECK(here.heap[3] == 0x1111111111111111);
    CHECK(here.heap[4] == 0x1111111111111111);
    CHECK(here.heap[5] == 0);
    CHECK(talk.answer_count() == 1);
  }
}

TEST_CASE("network: bulk without a record that wants it is refused, before it has a place") {
  end here;
  const auto refused = [&](const core::record& what, uint32_t bulk_bytes) {
    byte_vector text;
    core::append(text, what);
    const auto outcome = here.talk.on_frame(text, bulk_bytes);
    return outcome ? "" : outcome.error().text;
  };
  using kind = core::record_kind;
  CHECK(contains(refused({.kind = kind::put, .bytes = 8}, 9), "announces 8 bytes of data, 9"));
  CHECK(contains(refused({.kind = kind::put, .bytes = 16, .offset = 504}, 16), "offset 0x1f8"));
  CHECK(contains(refused({.kind = kind::data, .is_last = 1, .bytes = 8}, 8), "nobody waits for"));
  CHECK(contains(refused({.kind = kind::signal, .bytes = 8}, 8), "a record of kind 2"));
  const auto outcome = here.talk.on_frame({}, 8);
  REQUIRE_FALSE(static_cast<bool>(outcome));
  CHECK(outcome.error().text == "8 bytes of bulk behind no record");
}

TEST_CASE("network: what a peer may ask for at once is bounded") {
  end here;
  const core::record ask{.kind = core::record_kind::get, .value = 8};
  for (size_t i = 0; i < core::conversation::window; ++i) REQUIRE(here.hear(ask) == "");
  CHECK(contains(here.hear(ask), "more than 4096 requests at once"));
  CHECK(here.talk.answer_count() == core::conversation::window);
  for (size_t i = 0; i < core::conversation::window; ++i)
    REQUIRE(static_cast<bool>(here.talk.add(atomic(MORI_SHMEM_AMO_INC, 0, 0), {0, i})));
  CHECK_FALSE(here.talk.has_room());
}

TEST_CASE("network: goodbye comes after all answers") {
  end here, there;
  REQUIRE(static_cast<bool>(here.talk.add(atomic(MORI_SHMEM_AMO_FETCH, 0, 0), {0, 0})));
  CHECK(there.hear(here.say()) == "");
  there.talk.say_goodbye();
  CHECK(here.hear(there.say()) == "");
  CHECK(here.heard.complete.size() == 1);
  CHECK(here.talk.peer_has_left());
  CHECK_FALSE(there.talk.wants_to_speak());
}
