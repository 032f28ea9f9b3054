// engine_allocation_test.cpp - after warm-up no transfer allocates, on neither side and by no way:
// submission, the loop, the target's delivery and its notification. Counted by this
// program's own operator new, which the library uses too.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "pair.hpp"

using namespace mori_io_test;

namespace {
std::atomic<uint64_t> allocation_count{0};
}  // namespace

void* operator new(size_t bytes) {
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  void* const made = std::malloc(bytes == 0 ? 1 : bytes);
  if (made == nullptr) throw std::bad_alloc();
  return made;
}
void operator delete(void* given) noexcept { std::free(given); }
void operator delete(void* given, size_t) noexcept { std::free(given); }

namespace {

constexpr uint64_t room = 4 << 20;
constexpr char initiator_key[] = "an engine whose name is not short";
constexpr size_t most_flying = 16;

// One kind of transfer, made again and again; nothing here allocates.
class work {
 public:
  work(engine_pair& of, mori_io_session* on, int32_t operation, uint64_t bytes, size_t pieces,
       bool scattered)
      : pair_(of), session_(on), what_(operation, 0, 0, 0, 1) {
    what_.local.clear();
    what_.remote.clear();
    what_.sizes.clear();
    for (size_t i = 0; i < pieces; ++i) {
      what_.local.push_back(i * bytes);
      what_.remote.push_back((scattered ? pieces - 1 - i : i) * bytes);
      what_.sizes.push_back(bytes);
    }
    raw_ = *what_.get();
    note_.struct_size = sizeof note_;
  }
  // So many at once, so that queues have depth. False: something failed.
  bool run(int rounds, size_t depth) {
    for (int i = 0; i < rounds; ++i) {
      for (size_t k = 0; k < depth; ++k) {
        raw_.uid = ++uid_;
        if (mori_io_submit(session_, &raw_, &flying_[k], nullptr) != MORI_OK) return false;
      }
      if (mori_io_transfer_wait(flying_, depth, 20 * second_ns, nullptr) != MORI_OK) return false;
      for (size_t k = 0; k < depth; ++k) mori_io_transfer_release(flying_[k]);
      for (uint64_t uid = uid_ - depth + 1; uid <= uid_; ++uid)
        if (!take(uid)) return false;
    }
    return true;
  }

 private:
  bool take(uint64_t uid) {
    for (const uint64_t until = now_ns() + 5 * second_ns; now_ns() < until;) {
      if (mori_io_inbound_pop(pair_.b.io, initiator_key, uid, &note_, nullptr) == MORI_OK)
        return true;
      (void)mori_io_progress(pair_.b.io, 100'000, nullptr);
    }
    return false;
  }
  engine_pair& pair_;
  mori_io_session* session_;
  request what_;
  mori_io_request raw_{};
  mori_io_inbound note_{};
  mori_io_transfer* flying_[most_flying] = {};
  uint64_t uid_ = 0;
};

struct shape {
  uint64_t bytes;
  size_t pieces;
  bool scattered;
};
constexpr shape shapes[] = {{8, 1, false},       {65536, 1, false}, {1 << 20, 1, false},
                            {4096, 128, false},  {4096, 128, true}, {16384, 128, true},
                            {3 << 20, 1, false}, {0, 1, false}};

}  // namespace

TEST_CASE("no transfer allocates after warm-up, over TCP and through shared memory") {
  uint64_t before = allocation_count;
  engine_pair pair(options_of(initiator_key), options_of("b"), room);
  REQUIRE(allocation_count > before);  // the library's are counted
  void* memory = nullptr;
  uint32_t region = 0;
  MUST(mori_io_alloc(pair.b.io, room, &memory, error));
  for (mori_io* each : {pair.a.io, pair.b.io})
    MUST(mori_io_backend_create(each, MORI_IO_BACKEND_XGMI, nullptr, error));
  MUST(mori_io_memory_register(pair.b.io, memory, room, MORI_IO_LOCATION_CPU, -1, 0, &region,
                               error));
  const std::vector<uint8_t> desc = pair.b.memory_desc(region);
  for (const int32_t backend : {MORI_IO_BACKEND_TCP, MORI_IO_BACKEND_XGMI}) {
    CAPTURE(backend);
    mori_io_session_options pinned{};
    pinned.struct_size = sizeof pinned;
    pinned.backend = backend;
    mori_io_session* session = nullptr;
    MUST(mori_io_session_create(pair.a.io, pair.a.region, desc.data(), desc.size(), &pinned,
                                &session, error));
    for (const int32_t operation : {MORI_IO_WRITE, MORI_IO_READ})
      for (const shape& each : shapes) {
        CAPTURE(operation);
        CAPTURE(each.bytes);
        CAPTURE(each.pieces);
        work of(pair, session, operation, each.bytes, each.pieces, each.scattered);
        REQUIRE(of.run(10, most_flying));  // deeper than what is counted
        // A queue that grows once, where the machine is busy just then, is no allocation per
        // transfer: those would be in every round.
        uint64_t least = UINT64_MAX;
        for (int round = 0; round < 4 && least > 0; ++round) {
          before = allocation_count;
          REQUIRE(of.run(40, 4));
          least = std::min<uint64_t>(least, allocation_count - before);
        }
        CHECK(least == 0);
      }
    mori_io_session_destroy(session);
  }
  MUST(mori_io_memory_deregister(pair.b.io, region, error));
  MUST(mori_io_free(pair.b.io, memory, error));
}
