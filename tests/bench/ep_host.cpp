// ep_host.cpp - dispatch and combine of a mixture-of-experts layer between eight
// processes of this machine, by libmori-ep, against memcpy of as many bytes by as many processes.
// The processes measure all of it in turn, round after round, and print "NAME VALUE"
// lines, one of each name a round; compare.py makes ratios of medians.
//
//   usage: ep_host [--smoke] [ROUNDS]
//
// 512 tokens a rank, hidden 7168, bf16, top-8 of 256 experts drawn at random (seeded), weights
// travel with the rows and are summed too, but only rows are counted. A round's
// time is from when the first process begins to when the last has ended; every
// process sleeps until the next begins. Bytes, of all ranks together, each counted once:
//
//   dispatch           rows that were sent: one for each token and distinct destination rank
//   combine            the same rows, read from where experts left them (the registered buffer)
//   combine_external   rows copied to symmetric memory, and then read
//
// memcpy moves exactly as many bytes, in each process from private memory that no cache holds to
// shared memory whose pages all exist: `memcpy` in one piece, `memcpy_rows` row by row.
// Two ranks measure what a call costs: dispatch_1_token/ours, nanoseconds.
#include "clock.hpp"
#include "processes.hpp"
#include "resident.hpp"

#include <mori/ep.hpp>
#include <mori/shmem.hpp>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace bench = mori_bench;
using std::size_t;
using std::uint16_t;
using std::uint64_t;

constexpr int rank_count = 8;
constexpr uint64_t expert_count = 256;
constexpr uint64_t top_k = 8;

struct shape {
  uint64_t token_count = 512;
  uint64_t hidden = 7168;
  int round_count = 7;
  int ranks = rank_count;
  uint64_t row_bytes() const { return hidden * sizeof(uint16_t); }
  uint64_t most_rows() const { return static_cast<uint64_t>(ranks) * token_count; }
};

struct span_of_time {
  uint64_t begin_ns;
  uint64_t end_ns;
  uint64_t bytes;
};

struct board {
  mori_shmem_unique_id id;
  bench::meeting meeting;
  span_of_time times[rank_count];
};

// Small integers, exact in bf16 and in their sums: 1, 2 or 3 by row.
uint16_t bf16_of(uint64_t small) {
  constexpr uint16_t encoded[] = {0x0000, 0x3f80, 0x4000, 0x4040};
  return encoded[small];
}
float float_of(uint16_t bf16) {
  const std::uint32_t bits = std::uint32_t{bf16} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Distinct experts for each token.
std::vector<std::int32_t> draw_routing(int rank, const shape& of) {
  std::mt19937_64 random(2024 + static_cast<uint64_t>(rank));
  std::vector<std::int32_t> experts(expert_count), routing;
  for (size_t i = 0; i < expert_count; ++i) experts[i] = static_cast<std::int32_t>(i);
  for (uint64_t token = 0; token < of.token_count; ++token)
    for (size_t slot = 0; slot < top_k; ++slot) {
      std::swap(experts[slot], experts[slot + random() % (expert_count - slot)]);
      routing.push_back(experts[slot]);
    }
  return routing;
}

uint64_t destinations_of(const std::int32_t* experts, uint64_t experts_per_rank) {
  uint64_t ranks = 0;
  for (size_t slot = 0; slot < top_k; ++slot)
    ranks |= uint64_t{1} << (static_cast<uint64_t>(experts[slot]) / experts_per_rank);
  return static_cast<uint64_t>(__builtin_popcountll(ranks));
}

class rank_of_benchmark {
 public:
  rank_of_benchmark(int rank, board& shared, std::byte* plain_memory, const shape& of)
      : rank_(rank),
        shared_(shared),
        of_(of),
        experts_per_rank_(expert_count / static_cast<uint64_t>(of.ranks)),
        plain_(plain_memory),
        routing_(draw_routing(rank, of)),
        weights_(routing_.size(), 0.125f),
        input_(rows(of.token_count)),
        source_(rows(of.most_rows())),
        context_(join(rank, shared, of)),
        op_(create(context_, of, experts_per_rank_)) {
    for (uint64_t token = 0; token < of_.token_count; ++token) {
      std::fill_n(input_ + token * of_.hidden, of_.hidden, bf16_of(1 + token % 3));
      sent_rows_ += destinations_of(&routing_[token * top_k], experts_per_rank_);
    }
  }

  void measure_rounds() {
    for (int round = -1; round < of_.round_count; ++round) measure_round(round >= 0);
    if (rank_ == 0)
      std::printf("resident_beyond_heap_bytes/ours %llu\n",
                  static_cast<unsigned long long>(bench::resident_bytes_beyond_heaps() -
                                                  of_.most_rows() * of_.row_bytes() -
                                                  of_.token_count * of_.row_bytes()));
    shared_.meeting.wait();
  }

  // Nanoseconds of one dispatch in lockstep.
  void measure_calls(int call_count) {
    bench::stay_on_core(rank_);
    uint64_t start_ns = 0;
    for (int call = -call_count / 10; call < call_count; ++call) {
      if (call == 0) start_ns = bench::now_ns();
      dispatch();
    }
    if (rank_ == 0)
      std::printf("dispatch_1_token/ours %.1f\n",
                  static_cast<double>(bench::now_ns() - start_ns) / call_count);
    shared_.meeting.wait();
  }

 private:
  uint16_t* rows(uint64_t count) const {
    return reinterpret_cast<uint16_t*>(bench::touched_memory(count * of_.row_bytes()));
  }

  static mori::shmem::context join(int rank, board& shared, const shape& of) {
    if (rank == 0) shared.id = mori::shmem::make_unique_id().value();
    shared.meeting.wait();
    auto options = mori::shmem::options(rank, of.ranks);
    options.heap_bytes = 2 * of.most_rows() * of.row_bytes() + (uint64_t{32} << 20);
    options.wait_timeout_ns = 60'000'000'000;
    return mori::shmem::context::create(shared.id, options).value();
  }

  static mori::ep::op create(const mori::shmem::context& context, const shape& of,
                             uint64_t experts_per_rank) {
    auto config = mori::ep::config();
    config.hidden_dim = of.hidden;
    config.max_token_elem_bytes = sizeof(uint16_t);
    config.max_input_token_count = of.token_count;
    config.expert_per_rank_count = experts_per_rank;
    config.expert_per_token_count = top_k;
    config.registered_input = 1;
    return mori::ep::op::create(context, config).value();
  }

  // --- Rounds -----------------------------------------------------------------------------------

  // All ranks begin together; rank 0 prints bytes per second of all of them.
  template <class Work>
  void time(const char* name, bool prints, uint64_t bytes, Work work) {
    shared_.meeting.wait();
    span_of_time& mine = shared_.times[rank_];
    mine.bytes = bytes;
    mine.begin_ns = bench::now_ns();
    work();
    mine.end_ns = bench::now_ns();
    shared_.meeting.wait();
    if (rank_ != 0 || !prints) return;
    span_of_time all = shared_.times[0];
    for (int rank = 1; rank < of_.ranks; ++rank) {
      const span_of_time& other = shared_.times[rank];
      all.begin_ns = std::min(all.begin_ns, other.begin_ns);
      all.end_ns = std::max(all.end_ns, other.end_ns);
      all.bytes += other.bytes;
    }
    std::printf(
        "%s %.0f\n", name,
        static_cast<double>(all.bytes) * 1e9 / static_cast<double>(all.end_ns - all.begin_ns));
  }

  void measure_round(bool prints) {
    const uint64_t sent_bytes = sent_rows_ * of_.row_bytes();
    time("dispatch/ours", prints, sent_bytes, [&] { dispatch(); });
    time("dispatch/memcpy", prints, sent_bytes, [&] { copy(sent_bytes); });
    time("dispatch/memcpy_rows", prints, sent_bytes, [&] { copy_rows(sent_rows_); });

    let_experts_answer();
    time("combine/ours", prints, sent_bytes, [&] { combine({}); });
    check_sums();
    time("combine/memcpy", prints, sent_bytes, [&] { copy(sent_bytes); });

    dispatch();
    std::memcpy(source_, received_.data(), received_.size_bytes());
    const uint64_t moved_bytes = received_.size_bytes() + sent_bytes;
    time("combine_external/ours", prints, moved_bytes,
         [&] { combine({source_, received_.size()}); });
    check_sums();
    time("combine_external/memcpy", prints, moved_bytes, [&] {
      copy(received_.size_bytes());
      copy(sent_bytes);
    });
  }

  void dispatch() {
    auto got = op_.dispatch<uint16_t>({.dtype = MORI_EP_BF16,
                                       .rows = {input_, of_.token_count * of_.hidden},
                                       .indices = routing_,
                                       .weights = weights_});
    received_ = got.value().rows;
    received_weights_ = got.value().weights;
  }

  // Experts that change nothing, with their outputs in the registered buffer.
  void let_experts_answer() {
    std::span<std::byte> buffer = op_.combine_buffer().value();
    std::memcpy(buffer.data(), received_.data(), received_.size_bytes());
  }

  void combine(std::span<const uint16_t> outputs) {
    auto got = op_.combine<uint16_t>({.dtype = MORI_EP_BF16,
                                      .rows = outputs,
                                      .indices = routing_,
                                      .weights = received_weights_});
    combined_ = got.value().rows;
  }

  // A token comes back as often as it was sent.
  void check_sums() const {
    for (uint64_t token = 0; token < of_.token_count; ++token) {
      const uint64_t sent = destinations_of(&routing_[token * top_k], experts_per_rank_);
      const float expected = static_cast<float>(sent * (1 + token % 3));
      for (const uint64_t column : {uint64_t{0}, of_.hidden / 2, of_.hidden - 1})
        if (float_of(combined_[token * of_.hidden + column]) != expected)
          bench::give_up("combine gave a wrong sum");
    }
  }

  std::byte* plain_part() const {
    return plain_ + static_cast<uint64_t>(rank_) * of_.most_rows() * of_.row_bytes();
  }

  void copy(uint64_t bytes) const { std::memcpy(plain_part(), source_, bytes); }

  void copy_rows(uint64_t row_count) const {
    const auto* from = reinterpret_cast<const std::byte*>(source_);
    for (uint64_t row = 0; row < row_count; ++row)
      std::memcpy(plain_part() + row * of_.row_bytes(), from + row * of_.row_bytes(),
                  of_.row_bytes());
  }

  const int rank_;
  board& shared_;
  const shape of_;
  const uint64_t experts_per_rank_;
  std::byte* const plain_;
  const std::vector<std::int32_t> routing_;
  const std::vector<float> weights_;
  uint16_t* const input_;
  uint16_t* const source_;
  mori::shmem::context context_;
  mori::ep::op op_;
  uint64_t sent_rows_ = 0;
  std::span<uint16_t> received_;
  std::span<const float> received_weights_;
  std::span<const uint16_t> combined_;
};

bool run(const shape& of, void (*measure)(rank_of_benchmark&)) {
  auto& shared = bench::shared_object<board>();
  shared.meeting.prepare(of.ranks);
  std::byte* plain = bench::touched_memory(
      static_cast<uint64_t>(of.ranks) * of.most_rows() * of.row_bytes(), true);
  return bench::process_group::run(of.ranks, 150, [&](int rank) {
    rank_of_benchmark mine(rank, shared, plain, of);
    measure(mine);
  });
}

}  // namespace

int main(int argc, char** argv) {
  shape eight, two;
  two.ranks = 2;
  two.token_count = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--smoke") {
      eight.token_count = 16;
      eight.hidden = 256;
      eight.round_count = 1;
    } else if (const int rounds = std::atoi(argv[i]); rounds > 0) {
      eight.round_count = rounds;
    } else {
      std::fputs("usage: ep_host [--smoke] [ROUNDS]\n", stderr);
      return 2;
    }
  }
  const bool well = run(eight, [](rank_of_benchmark& rank) { rank.measure_rounds(); }) &&
                    run(two, [](rank_of_benchmark& rank) { rank.measure_calls(2000); });
  return well ? 0 : 1;
}
