// ep_bench.cpp - how fast dispatch and combine move bytes on the host, as a
// ratio to memcpy of the same number of bytes by the same number of processes.
// Each run measures ours and memcpy one after the other; the medians of all
// runs are printed, one line per metric:
//
//   metric=ep_dispatch_... ours=GB/s peer=GB/s ratio=x bytes=N
//
// Ranks are processes. A time is that of the slowest rank, from a common start.
// What is counted, per rank:
//   dispatch             rows written to peers (token, indices, weights)
//   combine registered   rows gathered; the input is in place
//   combine external     rows copied to symmetric memory, and rows gathered
// memcpy: one call for all these bytes, between two private, touched buffers.
#include <mori/ep.h>
#include <mori/shmem.h>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace {

struct plan {
  int rank_count = 8;
  uint64_t tokens = 512;
  uint64_t hidden = 7168;
  uint64_t experts = 256;
  uint64_t top_k = 8;
  int runs = 7;
};

enum metric { dispatch, combine_registered, combine_external, metric_count };
constexpr const char* metric_names[] = {"ep_dispatch", "ep_combine_registered",
                                        "ep_combine_external"};
constexpr int most_ranks = 64;
constexpr int most_runs = 101;

// What the processes share besides the library: the id, the common start, the times.
struct board {
  pthread_barrier_t start;
  mori_shmem_unique_id id;
  uint64_t bytes[metric_count][most_ranks];
  double ours[metric_count][most_runs][most_ranks];
  double peer[metric_count][most_runs][most_ranks];
};

double now_s() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void demand(mori_status status, const mori_error& error, const char* what) {
  if (status == MORI_OK) return;
  std::fprintf(stderr, "ep_bench: %s: %s\n", what, error.message);
  _exit(1);
}

class rank_run {
 public:
  rank_run(const plan& with, int rank, board& shared) : plan_(with), rank_(rank), board_(shared) {
    mori_error error = MORI_ERROR_INIT;
    if (rank == 0) demand(mori_shmem_unique_id_create(&board_.id, &error), error, "unique id");
    pthread_barrier_wait(&board_.start);
    mori_shmem_options options{};
    options.struct_size = sizeof options;
    options.pe = rank;
    options.pe_count = with.rank_count;
    options.heap_bytes = heap_bytes();
    demand(mori_shmem_create(&board_.id, &options, &shmem_, &error), error, "context");
    const mori_ep_config config = config_of();
    demand(mori_ep_create(shmem_, &config, &ep_, &error), error, "operator");
    make_input();
  }
  ~rank_run() {
    mori_shmem_barrier_all(shmem_, nullptr);
    mori_ep_destroy(ep_);
    mori_shmem_destroy(shmem_);
  }

  void measure() {
    for (int run = -1; run < plan_.runs; ++run) {  // -1 warms up
      note(dispatch, run, [&] { run_dispatch(); });
      fill_registered();
      note(combine_registered, run, [&] { run_combine(MORI_EP_INPUT_REGISTERED); });
      note(combine_external, run, [&] { run_combine(MORI_EP_INPUT_EXTERNAL); });
    }
  }

 private:
  mori_ep_config config_of() const {
    mori_ep_config c{};
    c.struct_size = sizeof c;
    c.hidden_dim = plan_.hidden;
    c.max_token_elem_bytes = 2;
    c.max_input_token_count = plan_.tokens;
    c.expert_per_rank_count = plan_.experts / static_cast<uint64_t>(plan_.rank_count);
    c.expert_per_token_count = plan_.top_k;
    c.registered_input = 1;
    return c;
  }

  uint64_t heap_bytes() const {
    const mori_ep_config c = config_of();
    mori_ep_memory memory{};
    memory.struct_size = sizeof memory;
    mori_error error = MORI_ERROR_INIT;
    demand(mori_ep_memory_query(&c, plan_.rank_count, &memory, &error), error, "memory query");
    return memory.symmetric_bytes + (uint64_t{16} << 20);
  }

  void make_input() {
    std::mt19937_64 random(static_cast<uint64_t>(rank_) + 1);
    uint64_t sent = 0;
    for (uint64_t token = 0; token < plan_.tokens; ++token) {
      std::set<uint64_t> ids, ranks;
      while (ids.size() < plan_.top_k) ids.insert(random() % plan_.experts);
      for (const uint64_t id : ids) {
        indices_.push_back(static_cast<int32_t>(id));
        ranks.insert(id / (plan_.experts / static_cast<uint64_t>(plan_.rank_count)));
      }
      sent += ranks.size();
    }
    weights_.assign(plan_.tokens * plan_.top_k, 0.125f);
    tokens_.resize(plan_.tokens * plan_.hidden);
    for (uint16_t& each : tokens_) each = static_cast<uint16_t>(0x3F00 | (random() & 0x80FF));
    const uint64_t row = plan_.hidden * 2;
    bytes_[dispatch] = sent * (row + 8 * plan_.top_k);
    bytes_[combine_registered] = sent * row;
    board_.bytes[dispatch][rank_] = bytes_[dispatch];
    board_.bytes[combine_registered][rank_] = bytes_[combine_registered];
    // The largest that a copy may have to move: all received rows, all gathered rows.
    const uint64_t most = static_cast<uint64_t>(plan_.rank_count) * plan_.tokens * row + sent * row;
    source_.assign(most, 1);
    target_.assign(most, 2);
  }

  void run_dispatch() {
    mori_ep_dispatch_args args{};
    args.struct_size = sizeof args;
    args.input = tokens_.data();
    args.weights = weights_.data();
    args.indices = indices_.data();
    args.token_count = plan_.tokens;
    args.dtype = MORI_EP_BF16;
    mori_error error = MORI_ERROR_INIT;
    received_.struct_size = sizeof received_;
    demand(mori_ep_dispatch(ep_, &args, &received_, &error), error, "dispatch");
  }

  // The experts' work, not measured.
  void fill_registered() {
    const uint64_t row_bytes = plan_.hidden * 2;
    void* buffer = nullptr;
    uint64_t size_bytes = 0;
    mori_error error = MORI_ERROR_INIT;
    demand(mori_ep_combine_buffer(ep_, &buffer, &size_bytes, &error), error, "combine buffer");
    outputs_.resize(received_.recv_token_count * row_bytes);
    std::memcpy(outputs_.data(), received_.out, outputs_.size());
    std::memcpy(buffer, received_.out, outputs_.size());
    bytes_[combine_external] = bytes_[combine_registered] + outputs_.size();
    board_.bytes[combine_external][rank_] = bytes_[combine_external];
  }

  void run_combine(int32_t mode) {
    mori_ep_combine_args args{};
    args.struct_size = sizeof args;
    args.input = outputs_.data();
    args.input_row_count = received_.recv_token_count;
    args.indices = indices_.data();
    args.token_count = plan_.tokens;
    args.dtype = MORI_EP_BF16;
    args.input_mode = mode;
    mori_error error = MORI_ERROR_INIT;
    mori_ep_combine_result result{};
    result.struct_size = sizeof result;
    demand(mori_ep_combine(ep_, &args, &result, &error), error, "combine");
  }

  template <class Body>
  void note(metric what, int run, Body body) {
    const double ours = time_of(body);
    const double peer = time_of([&] {
      std::memcpy(target_.data(), source_.data(), bytes_[what]);
      // The copy is not dead code.
      asm volatile("" ::"r"(target_.data()) : "memory");
    });
    if (run < 0) return;
    board_.ours[what][run][rank_] = ours;
    board_.peer[what][run][rank_] = peer;
  }

  template <class Body>
  double time_of(Body body) {
    pthread_barrier_wait(&board_.start);
    const double begin = now_s();
    body();
    const double spent = now_s() - begin;
    pthread_barrier_wait(&board_.start);
    return spent;
  }

  const plan& plan_;
  const int rank_;
  board& board_;
  mori_shmem* shmem_ = nullptr;
  mori_ep* ep_ = nullptr;
  std::vector<int32_t> indices_;
  std::vector<float> weights_;
  std::vector<uint16_t> tokens_;
  std::vector<unsigned char> outputs_, source_, target_;
  mori_ep_dispatch_result received_{};
  uint64_t bytes_[metric_count] = {};
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print(const plan& with, const board& shared) {
  const auto ranks = static_cast<size_t>(with.rank_count);
  for (int what = 0; what < metric_count; ++what) {
    uint64_t bytes = 0;
    for (size_t rank = 0; rank < ranks; ++rank) bytes += shared.bytes[what][rank];
    std::vector<double> ours, peer, ratio;
    for (int run = 0; run < with.runs; ++run) {
      const auto slowest = [&](const double* times) {
        return *std::max_element(times, times + ranks);
      };
      ours.push_back(static_cast<double>(bytes) / slowest(shared.ours[what][run]) * 1e-9);
      peer.push_back(static_cast<double>(bytes) / slowest(shared.peer[what][run]) * 1e-9);
      ratio.push_back(ours.back() / peer.back());
    }
    std::printf("metric=%s_%dx%llux%llu_bf16_GBps ours=%.3f peer=%.3f ratio=%.3f bytes=%llu\n",
                metric_names[what], with.rank_count, static_cast<unsigned long long>(with.tokens),
                static_cast<unsigned long long>(with.hidden), median(ours), median(peer),
                median(ratio), static_cast<unsigned long long>(bytes));
  }
}

bool read_options(int argc, char** argv, plan& to) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--ranks")
      to.rank_count = static_cast<int>(value);
    else if (name == "--tokens")
      to.tokens = value;
    else if (name == "--hidden")
      to.hidden = value;
    else if (name == "--runs")
      to.runs = static_cast<int>(value);
    else
      return false;
  }
  return argc % 2 == 1 && to.rank_count >= 1 && to.rank_count <= most_ranks && to.runs >= 1 &&
         to.runs <= most_runs && to.experts % static_cast<uint64_t>(to.rank_count) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  plan with;
  if (!read_options(argc, argv, with)) {
    std::fprintf(stderr, "usage: ep_bench [--ranks N] [--tokens N] [--hidden N] [--runs N]\n");
    return 2;
  }
  void* memory =
      mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  board& shared = *static_cast<board*>(memory);
  pthread_barrierattr_t across;
  pthread_barrierattr_init(&across);
  pthread_barrierattr_setpshared(&across, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared.start, &across, static_cast<unsigned>(with.rank_count));
  for (int rank = 0; rank < with.rank_count; ++rank) {
    if (fork() != 0) continue;
    // Nobody waits for ever for a rank that died.
    alarm(300);
    rank_run(with, rank, shared).measure();
    _exit(0);
  }
  bool good = true;
  for (int rank = 0; rank < with.rank_count; ++rank) {
    int status = 0;
    good &= wait(&status) > 0 && status == 0;
  }
  if (!good) return 1;
  print(with, shared);
  return 0;
}
