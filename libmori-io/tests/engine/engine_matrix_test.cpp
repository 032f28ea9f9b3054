// engine_matrix_test.cpp - backend x kinds of memory x call x size: every combination
// moves exactly the bytes it should, and is notified once. Two engines of this
// process; other processes: engine_faults_test.cpp, local/engine_xgmi_test.cpp.
#include <algorithm>
#include <cstdlib>
#include <random>

#include "pair.hpp"

using namespace mori_io_test;

namespace {

constexpr uint64_t room = 2 << 20;

// Memory of one kind, registered.
class area {
 public:
  area(mori_io* io, bool is_shared, uint64_t bytes) : io_(io), is_shared_(is_shared) {
    if (is_shared) {
      void* made = nullptr;
      MUST(mori_io_alloc(io, bytes, &made, error));
      data = static_cast<uint8_t*>(made);
    } else {
      plain_.resize(bytes);
      data = plain_.data();
    }
    MUST(mori_io_memory_register(io, data, bytes, MORI_IO_LOCATION_CPU, -1, 0, &region, error));
  }
  area(const area&) = delete;
  area& operator=(const area&) = delete;
  ~area() {
    (void)mori_io_memory_deregister(io_, region, nullptr);
    if (is_shared_) (void)mori_io_free(io_, data, nullptr);
  }
  uint8_t* data = nullptr;
  uint32_t region = 0;

 private:
  mori_io* io_;
  bool is_shared_;
  std::vector<uint8_t> plain_;
};

struct combination {
  int32_t backend;
  bool local_shared, remote_shared;
};

// Random bytes; both sides' memory is compared with a model after each transfer.
class bench {
 public:
  bench(engine_pair& of, const combination& what, uint64_t seed)
      : pair_(of),
        local_(of.a.io, what.local_shared, room),
        remote_(of.b.io, what.remote_shared, room),
        random_(seed) {
    options_.struct_size = sizeof options_;
    options_.backend = what.backend;
    for (auto* each : {&session, &second}) *each = join();
    for (uint64_t i = 0; i < room; i += 8) {
      const uint64_t word = random_(), other = random_();
      std::memcpy(local_.data + i, &word, 8);
      std::memcpy(remote_.data + i, &other, 8);
    }
    here_.assign(local_.data, local_.data + room);
    there_.assign(remote_.data, remote_.data + room);
  }
  ~bench() {
    mori_io_session_destroy(session);
    mori_io_session_destroy(second);
  }

  // Pieces as they are; those of one call do not overlap at their destination.
  void move(mori_io_session* on, request what) {
    what.raw.uid = ++uid_;
    const bool reads = what.raw.operation == MORI_IO_READ;
    uint64_t total = 0;
    for (size_t i = 0; i < what.sizes.size(); ++i) {
      uint8_t* const here = here_.data() + what.local[i];
      uint8_t* const there = there_.data() + what.remote[i];
      std::memcpy(reads ? here : there, reads ? there : here, what.sizes[i]);
      total += what.sizes[i];
    }
    const failed outcome = run(on, std::move(what));
    REQUIRE_MESSAGE(outcome.status == MORI_OK, outcome.text);
    REQUIRE(std::equal(here_.begin(), here_.end(), local_.data));
    REQUIRE(std::equal(there_.begin(), there_.end(), remote_.data));
    mori_io_inbound note;
    REQUIRE(pop_inbound(pair_.b.io, "a", uid_, note));
    CHECK(note.size_bytes == total);
    CHECK(note.operation == (reads ? MORI_IO_READ : MORI_IO_WRITE));
    CHECK(note.memory_id == remote_.region);
    CHECK(mori_io_inbound_pop(pair_.b.io, "a", uid_, &note, nullptr) == MORI_E_AGAIN);
  }
  uint64_t below(uint64_t bound) { return random_() % bound; }

  mori_io_session* session = nullptr;
  mori_io_session* second = nullptr;  // of the same pair of regions

 private:
  mori_io_session* join() {
    const auto desc = pair_.b.memory_desc(remote_.region);
    mori_io_session* made = nullptr;
    MUST(mori_io_session_create(pair_.a.io, local_.region, desc.data(), desc.size(), &options_,
                                &made, error));
    return made;
  }
  engine_pair& pair_;
  area local_, remote_;
  std::mt19937_64 random_;
  mori_io_session_options options_{};
  std::vector<uint8_t> here_, there_;
  uint64_t uid_ = uint64_t{1} << 32;
};

constexpr uint64_t sizes[] = {0, 1, 7, 4096, 65535, 65537, 1 << 20, (1 << 20) + 13};

void single(bench& on, int32_t operation) {
  for (const uint64_t bytes : sizes)
    for (const uint64_t shift : {uint64_t{0}, uint64_t{3}})
      on.move(on.session, request(operation, 5 * shift, shift, bytes));
}

// Adjacent ones in order, the same shuffled, strided ones, empty ones in between.
void batch(bench& on, int32_t operation) {
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{511}, uint64_t{4096}})
    for (const uint64_t stride : {bytes, bytes + 1, 3 * bytes}) {
      std::vector<uint64_t> order(128);
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      for (const bool shuffled : {false, true}) {
        if (shuffled)
          for (size_t i = order.size(); i-- > 1;) std::swap(order[i], order[on.below(i + 1)]);
        request what(operation, 0, 0, 0);
        for (size_t i = 0; i < order.size(); ++i) {
          what.local.push_back(i * stride);
          what.remote.push_back(order[i] * stride + 1);
          what.sizes.push_back(i % 10 == 9 ? 0 : bytes);
        }
        on.move(on.session, what);
      }
    }
}

// One after the other through two sessions of the same regions, each onto what the other wrote.
void several(bench& on, int32_t operation) {
  for (int i = 0; i < 16; ++i) {
    const uint64_t bytes = 1 + on.below(100'000);
    on.move(i % 2 == 0 ? on.session : on.second,
            request(operation, on.below(room - bytes), on.below(room - bytes), bytes));
  }
}

}  // namespace

TEST_CASE("backend x memory x call x size") {
  const char* const given = std::getenv("MORI_TEST_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  INFO("repeat with MORI_TEST_SEED=", seed, " io_matrix_test -tc='backend x*'");
  engine_pair pair(4096);
  for (mori_io* each : {pair.a.io, pair.b.io})
    MUST(mori_io_backend_create(each, MORI_IO_BACKEND_XGMI, nullptr, error));
  for (const int32_t backend : {MORI_IO_BACKEND_TCP, MORI_IO_BACKEND_XGMI})
    for (const bool local_shared : {false, true})
      for (const bool remote_shared : {false, true}) {
        CAPTURE(backend);
        CAPTURE(local_shared);
        CAPTURE(remote_shared);
        bench on(pair, {backend, local_shared, remote_shared}, seed);
        REQUIRE(stats_of(on.session).backend == backend);
        for (const int32_t operation : {MORI_IO_WRITE, MORI_IO_READ}) {
          CAPTURE(operation);
          single(on, operation);
          batch(on, operation);
          several(on, operation);
        }
      }
}

// vLLM's layout: [2, blocks, 16 tokens, heads, 128] of 2 bytes, keys before values; blocks go to
// other numbers at the decoding side, and only some heads of each.
TEST_CASE("paged KV blocks, shuffled and of some heads") {
  constexpr uint64_t blocks = 64, tokens = 16, heads = 4, head_bytes = 256;
  constexpr uint64_t token_bytes = heads * head_bytes, block_bytes = tokens * token_bytes;
  constexpr uint64_t half = blocks * block_bytes;
  static_assert(2 * half <= room);
  engine_pair pair(4096);
  for (mori_io* each : {pair.a.io, pair.b.io})
    MUST(mori_io_backend_create(each, MORI_IO_BACKEND_XGMI, nullptr, error));
  for (const int32_t backend : {MORI_IO_BACKEND_TCP, MORI_IO_BACKEND_XGMI}) {
    CAPTURE(backend);
    bench on(pair, {backend, false, true}, 7);
    for (const int32_t operation : {MORI_IO_WRITE, MORI_IO_READ}) {
      request whole(operation, 0, 0, 0), some(operation, 0, 0, 0);
      for (uint64_t kv = 0; kv < 2; ++kv)
        for (uint64_t i = 0; i < blocks; ++i) {
          const uint64_t from = kv * half + i * block_bytes;
          const uint64_t to = kv * half + (i * 29 + 3) % blocks * block_bytes;
          whole.local.push_back(from);
          whole.remote.push_back(to);
          whole.sizes.push_back(block_bytes);
          for (uint64_t t = 0; t < tokens; ++t) {
            some.local.push_back(from + t * token_bytes + head_bytes);
            some.remote.push_back(to + t * token_bytes + 2 * head_bytes);
            some.sizes.push_back(2 * head_bytes);
          }
        }
      on.move(on.session, whole);
      on.move(on.second, some);
    }
  }
}

TEST_CASE("more than 4 GiB in one call") {
  constexpr uint64_t bytes = 64 << 20, count = 66;  // of the same memory: 4.1 GiB in all
  mori_io_options with = options_of("a"), other = options_of("b");
  with.security = other.security = MORI_IO_SECURITY_TRUSTED;
  engine_pair pair(with, other, bytes + count);
  for (mori_io* each : {pair.a.io, pair.b.io})
    MUST(mori_io_backend_create(each, MORI_IO_BACKEND_XGMI, nullptr, error));
  fill_pattern(pair.a.memory, 11);
  for (const int32_t backend : {MORI_IO_BACKEND_TCP, MORI_IO_BACKEND_XGMI}) {
    CAPTURE(backend);
    mori_io_session_options pinned{};
    pinned.struct_size = sizeof pinned;
    pinned.backend = backend;
    mori_io_session* const session = pair.a.session_to(pair.b, &pinned);
    std::fill(pair.b.memory.begin(), pair.b.memory.end(), uint8_t{0});
    request what(MORI_IO_WRITE, 0, 0, bytes, static_cast<uint64_t>(backend));
    for (uint64_t i = 1; i < count; ++i) {
      what.local.push_back(i);
      what.remote.push_back(i);
      what.sizes.push_back(bytes);
    }
    mori_io_transfer* const made = submit(session, what);
    const failed outcome = wait_for(made, 60 * second_ns);
    CHECK_MESSAGE(outcome.status == MORI_OK, outcome.text);
    CHECK(report_of(made).size_bytes == count * bytes);
    mori_io_transfer_release(made);
    mori_io_inbound note;
    REQUIRE(pop_inbound(pair.b.io, "a", static_cast<uint64_t>(backend), note));
    CHECK(note.size_bytes == count * bytes);
    CHECK(std::equal(pair.a.memory.begin(), pair.a.memory.end() - 1, pair.b.memory.begin()));
    mori_io_session_destroy(session);
  }
}
