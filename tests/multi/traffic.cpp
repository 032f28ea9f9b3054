// traffic.cpp - see traffic.hpp.
#include "traffic.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

namespace multi {
namespace {

constexpr uint64_t column_bytes = 4096;
constexpr uint64_t column_words = column_bytes / 8;
constexpr uint64_t counter_count = 4;
constexpr uint64_t hammer_words = 8;
constexpr uint64_t large_bytes = 700'001;
constexpr uint64_t slot_bytes = 700'032;

#define TRY(call)                                                \
  do {                                                           \
    if (const mori_status s_ = (call); s_ != MORI_OK) return s_; \
  } while (false)
#define TRY_OUT(call)                                                  \
  do {                                                                 \
    if (const mori_status s_ = (call); s_ != MORI_OK) return {s_, ""}; \
  } while (false)

uint8_t pattern(uint64_t at, int from, uint64_t salt) {
  return static_cast<uint8_t>(at * 31 + static_cast<uint64_t>(from) * 7 + salt);
}

mori_shmem_atomic_args atomic_args(void* word, int32_t op, uint64_t value, int pe,
                                   uint64_t bytes = 8) {
  mori_shmem_atomic_args args{};
  args.struct_size = sizeof args;
  args.target = word;
  args.op = op;
  args.value = value;
  args.pe = pe;
  args.size_bytes = bytes;
  return args;
}

mori_shmem_put_signal_args signal_args(uint64_t* signal, int32_t op, uint64_t value, int pe) {
  mori_shmem_put_signal_args args{};
  args.struct_size = sizeof args;
  args.signal = signal;
  args.signal_op = op;
  args.signal_value = value;
  args.pe = pe;
  return args;
}

}  // namespace

// One PE's view: what its column holds on each PE, and what it added to counters.
struct traffic::model {
  std::mt19937_64 random;
  std::vector<std::vector<uint64_t>> words;                // [target][column_words]
  std::vector<std::array<uint64_t, counter_count>> added;  // [target]
  uint64_t wrong = 0;
  // Puts may go on until a quiet, so sources stay.
  std::vector<std::vector<uint8_t>> sources;
};

uint8_t* traffic::column(int writer) const {
  return area_ + column_bytes * static_cast<uint64_t>(writer);
}
uint64_t* traffic::counters() const { return reinterpret_cast<uint64_t*>(column(pe_count_)); }
uint64_t* traffic::sums(int writer) const {
  return counters() + counter_count + hammer_words + counter_count * static_cast<uint64_t>(writer);
}

mori_status traffic::open(mori_shmem* shmem, int pe, int pe_count, mori_error* error) {
  shmem_ = shmem;
  pe_ = pe;
  pe_count_ = pe_count;
  const auto count = static_cast<uint64_t>(pe_count);
  const uint64_t bytes =
      column_bytes * count + 8 * (counter_count + hammer_words + counter_count * count);
  void* memory = nullptr;
  TRY(mori_shmem_malloc(shmem, bytes, &memory, error));
  area_ = static_cast<uint8_t*>(memory);
  return mori_shmem_barrier_all(shmem, error);
}

traffic::outcome traffic::sizes(mori_error* error) {
  const auto count = static_cast<uint64_t>(pe_count_);
  void* memory = nullptr;
  TRY_OUT(mori_shmem_malloc(shmem_, slot_bytes * count, &memory, error));
  auto* inbox = static_cast<uint8_t*>(memory);
  uint8_t* mine = inbox + slot_bytes * static_cast<uint64_t>(pe_);
  std::vector<uint8_t> source(large_bytes), back(large_bytes);
  uint64_t wrong = 0;
  for (const uint64_t bytes :
       {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{7}, uint64_t{8}, uint64_t{15}, uint64_t{16},
        uint64_t{17}, uint64_t{2047}, uint64_t{2049}, uint64_t{65'537}, large_bytes}) {
    for (uint64_t i = 0; i < bytes; ++i) source[i] = pattern(i, pe_, bytes);
    for (int to = 0; to < pe_count_; ++to)
      TRY_OUT(mori_shmem_put(shmem_, mine, source.data(), bytes, to, error));
    TRY_OUT(mori_shmem_barrier_all(shmem_, error));
    for (int from = 0; from < pe_count_; ++from)
      for (uint64_t i = 0; i < bytes; ++i)
        wrong += inbox[slot_bytes * static_cast<uint64_t>(from) + i] != pattern(i, from, bytes);
    for (int from = 0; from < pe_count_; ++from) {
      back.assign(large_bytes, 0);
      TRY_OUT(mori_shmem_get(shmem_, back.data(), mine, bytes, from, error));
      wrong += std::memcmp(back.data(), source.data(), bytes) != 0;
    }
    TRY_OUT(mori_shmem_barrier_all(shmem_, error));
  }
  TRY_OUT(mori_shmem_free(shmem_, memory, error));
  return {MORI_OK, "wrong=" + std::to_string(wrong)};
}

mori_status traffic::random_operation(model& m, mori_error* error) {
  const auto pick = [&](uint64_t bound) { return m.random() % bound; };
  const int to = static_cast<int>(pick(static_cast<uint64_t>(pe_count_)));
  auto& words = m.words[static_cast<size_t>(to)];
  auto* bytes = reinterpret_cast<uint8_t*>(words.data());
  uint8_t* mine = column(pe_);
  const uint64_t at = pick(column_bytes + 1);
  const uint64_t size = pick(4) == 0 ? pick(column_bytes - at + 1)
                                     : pick(std::min<uint64_t>(column_bytes - at, 24) + 1);
  const uint64_t word = pick(column_words), counter = pick(counter_count), value = m.random();
  auto* word_address = reinterpret_cast<uint64_t*>(mine) + word;
  std::vector<uint8_t> data(size);
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(m.random());
  uint64_t before = 0;
  switch (pick(6)) {
    case 0:
      TRY(mori_shmem_put(shmem_, mine + at, data.data(), size, to, error));
      std::memcpy(bytes + at, data.data(), size);
      m.sources.push_back(std::move(data));
      return MORI_OK;
    case 1: {
      TRY(mori_shmem_get(shmem_, data.data(), mine + at, size, to, error));
      m.wrong += std::memcmp(data.data(), bytes + at, size) != 0;
      return MORI_OK;
    }
    case 2: {
      const auto args = atomic_args(word_address, MORI_SHMEM_AMO_SWAP, value, to);
      TRY(mori_shmem_atomic(shmem_, &args, &before, error));
      m.wrong += before != words[word];
      words[word] = value;
      return MORI_OK;
    }
    case 3: {
      auto args = atomic_args(word_address, MORI_SHMEM_AMO_COMPARE_SWAP, value, to);
      args.compare = pick(2) == 0 ? words[word] : value;
      TRY(mori_shmem_atomic(shmem_, &args, &before, error));
      m.wrong += before != words[word];
      if (args.compare == words[word]) words[word] = value;
      return MORI_OK;
    }
    case 4: {
      const auto args = atomic_args(counters() + counter, MORI_SHMEM_AMO_ADD, value, to);
      TRY(mori_shmem_atomic(shmem_, &args, nullptr, error));
      m.added[static_cast<size_t>(to)][counter] += value;
      return MORI_OK;
    }
    default: {
      auto args = signal_args(counters() + counter, MORI_SHMEM_SIGNAL_ADD, value, to);
      args.target = mine + at;
      args.source = data.data();
      args.size_bytes = size;
      TRY(mori_shmem_put_signal(shmem_, &args, error));
      std::memcpy(bytes + at, data.data(), size);
      m.added[static_cast<size_t>(to)][counter] += value;
      m.sources.push_back(std::move(data));
      return MORI_OK;
    }
  }
}

// Each PE tells each what it has added there; then everything is compared.
mori_status traffic::verify(model& m, mori_error* error) {
  for (int to = 0; to < pe_count_; ++to)
    TRY(mori_shmem_put(shmem_, sums(pe_), m.added[static_cast<size_t>(to)].data(),
                       sizeof m.added[0], to, error));
  TRY(mori_shmem_quiet(shmem_, error));
  m.sources.clear();
  std::vector<uint64_t> back(column_words);
  for (int to = 0; to < pe_count_; ++to) {
    TRY(mori_shmem_get(shmem_, back.data(), column(pe_), column_bytes, to, error));
    m.wrong += back != m.words[static_cast<size_t>(to)];
  }
  TRY(mori_shmem_barrier_all(shmem_, error));
  for (uint64_t counter = 0; counter < counter_count; ++counter) {
    uint64_t sum = 0;
    for (int writer = 0; writer < pe_count_; ++writer) sum += sums(writer)[counter];
    m.wrong += counters()[counter] != sum;
  }
  return mori_shmem_barrier_all(shmem_, error);
}

traffic::outcome traffic::random(uint64_t seed, uint64_t rounds, uint64_t operations,
                                 mori_error* error) {
  model m;
  const auto count = static_cast<size_t>(pe_count_);
  m.random.seed(seed * 1000 + static_cast<uint64_t>(pe_));
  m.words.assign(count, std::vector<uint64_t>(column_words, 0));
  m.added.assign(count, {});
  // Earlier commands may have left something.
  std::memset(area_, 0, column_bytes * count);
  std::memset(counters(), 0, 8 * counter_count);
  TRY_OUT(mori_shmem_barrier_all(shmem_, error));
  for (uint64_t round = 0; round < rounds; ++round) {
    for (uint64_t i = 0; i < operations; ++i) TRY_OUT(random_operation(m, error));
    TRY_OUT(verify(m, error));
  }
  return {MORI_OK, "wrong=" + std::to_string(m.wrong) +
                       " operations=" + std::to_string(rounds * operations)};
}

traffic::outcome traffic::hammer(int target, uint64_t count, mori_error* error) {
  uint64_t* word = counters() + counter_count;
  std::memset(word, 0, 8 * hammer_words);
  TRY_OUT(mori_shmem_barrier_all(shmem_, error));
  uint64_t before = 0, sum = 0, wrong = 0;
  for (uint64_t i = 0; i < count; ++i) {
    auto args = atomic_args(word, MORI_SHMEM_AMO_FETCH_ADD, 1, target);
    TRY_OUT(mori_shmem_atomic(shmem_, &args, &before, error));
    sum += before;
    // 4 bytes, and the other half of that word is nobody's.
    args = atomic_args(word + 1, MORI_SHMEM_AMO_INC, 0, target, 4);
    TRY_OUT(mori_shmem_atomic(shmem_, &args, nullptr, error));
    const auto signal = signal_args(word + 2, MORI_SHMEM_SIGNAL_ADD, 3, target);
    TRY_OUT(mori_shmem_put_signal(shmem_, &signal, error));
    // A bit of its own, set and cleared: nobody else may have touched it.
    const uint64_t bit = uint64_t{1} << (pe_ % 64);
    args = atomic_args(word + 3, MORI_SHMEM_AMO_FETCH_XOR, bit, target);
    TRY_OUT(mori_shmem_atomic(shmem_, &args, &before, error));
    wrong += ((before & bit) != 0) != (i % 2 == 1);
  }
  TRY_OUT(mori_shmem_barrier_all(shmem_, error));
  std::array<uint64_t, 4> last{};
  TRY_OUT(mori_shmem_get(shmem_, last.data(), word, sizeof last, target, error));
  TRY_OUT(mori_shmem_barrier_all(shmem_, error));
  std::string text = "before=" + std::to_string(sum) + " wrong=" + std::to_string(wrong);
  // Not `" " + ...`: g++ 12 sees an overlap in it that is not there.
  for (const uint64_t value : last) text.append(" ").append(std::to_string(value));
  return {MORI_OK, text};
}

traffic::outcome traffic::burst(int target, uint64_t count, mori_error* error) {
  auto* words = reinterpret_cast<uint64_t*>(column(pe_));
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t value = i + 1;
    TRY_OUT(mori_shmem_put(shmem_, words + i % column_words, &value, 8, target, error));
  }
  TRY_OUT(mori_shmem_quiet(shmem_, error));
  std::vector<uint64_t> back(column_words);
  TRY_OUT(mori_shmem_get(shmem_, back.data(), words, column_bytes, target, error));
  uint64_t wrong = 0;
  for (uint64_t i = count < column_words ? 0 : count - column_words; i < count; ++i)
    wrong += back[i % column_words] != i + 1;
  TRY_OUT(mori_shmem_barrier_all(shmem_, error));
  return {MORI_OK, "wrong=" + std::to_string(wrong)};
}

}  // namespace multi
