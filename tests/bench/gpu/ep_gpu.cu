// ep_gpu.cu - dispatch and combine of a mixture-of-experts layer between processes
// that share one GPU (under MPS, which compare.py starts), by libmori-ep. Rank 0 prints
// "NAME VALUE" lines, one of each name a sample; compare.py makes ratios of medians.
//
//   usage: ep_gpu RANKS [--quick] [--tokens N] [--blocks N] [--warps N] [--only TEXT]
//
// 4096 and 128 tokens a rank, hidden 7168, top-8 of 256 experts drawn at random (seeded), weights
// travel; fp8 rows carry 56 float32 scales. Names are WHAT_DTYPE_TOKENS_epRANKS/WHO; values are
// bytes per second, and with _ns nanoseconds of one call. Bytes are those of the rows that were
// routed, one for each token and distinct destination rank, of all ranks together; weights,
// indices and scales are not counted.
//
//   dispatch, combine       combine's input in place, where dispatch put the rows
//   combine_external        from a buffer of the caller's, which the call copies first
//   layer                   dispatch, then combine in place
//   /ours                   calls enqueued one after the other; a call waits for its peers
//   /graph                  the same call captured once, the graph launched as often
//   /naive                  ep_naive.hpp
//   /copy                   as many bytes by one device-to-device cudaMemcpyAsync, by a process
//                           that has the whole GPU to itself
//   call_*_ns/host          host time of enqueueing one call
//
// Times are the slowest rank's. Nothing is cold: rows are used again and again, as far as the
// cache holds them. Every element of every result is checked on the GPU, in each sample, before a
// number is printed.
#include "../clock.hpp"
#include "ep_naive.hpp"
#include "ep_operator.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace {

namespace bench = mori_bench;
using bench::must;
using std::size_t;
using std::uint64_t;

struct ep_plan {
  bench::ep_shape shape{0, 4096, 7168};  // tokens: the largest count
  std::vector<uint64_t> token_counts{4096, 128};
  bench::ep_launch launch;
  int samples = 9;
  int large_calls = 30;
  int small_calls = 300;
  std::string only;
  int calls(uint64_t tokens) const { return tokens > 512 ? large_calls : small_calls; }
};

struct board {
  mori_shmem_unique_id id;
  bench::meeting ranks;     // of the ranks
  bench::meeting everyone;  // and of the process that copies
  double spent_ns[bench::most_ranks];
  double host_ns[bench::most_ranks];
  int captured[bench::most_ranks];
};

std::string case_name(const char* what, const char* dtype, uint64_t tokens, int ranks) {
  return std::string(what) + "_" + dtype + "_" + std::to_string(tokens) + "_ep" +
         std::to_string(ranks);
}

void print_rate(const std::string& name, const char* who, double bytes, double spent_ns) {
  std::printf("%s/%s %.0f\n%s_ns/%s %.1f\n", name.c_str(), who, bytes * 1e9 / spent_ns,
              name.c_str(), who, spent_ns);
}

// --- One rank ------------------------------------------------------------------------------------

class rank_of_benchmark {
 public:
  rank_of_benchmark(int rank, board& shared, const ep_plan& plan)
      : rank_(rank),
        shared_(shared),
        plan_(plan),
        multiprocessors_(bench::use_gpu()),
        context_(join(rank, shared, plan)),
        row_bytes_(plan.shape.hidden * sizeof(std::uint16_t)),
        inputs_(make_inputs(plan.shape)),
        indices_(bench::device_memory<std::int32_t>(plan.shape.tokens * bench::top_k)),
        all_experts_(bench::device_memory<std::int32_t>(plan.shape.capacity() * bench::top_k)),
        external_(bench::device_memory<std::uint16_t>(plan.shape.capacity() * plan.shape.hidden)),
        wrong_(bench::device_memory<bench::wrong_count>(1)) {
    must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    void* pinned = nullptr;
    must(cudaHostAlloc(&pinned, plan.shape.capacity() * sizeof(std::int32_t), cudaHostAllocDefault),
         "pinned memory");
    positions_ = static_cast<std::int32_t*>(pinned);
    bench::fill_inputs<<<256, 256, 0, stream_>>>(inputs_, static_cast<unsigned>(rank), plan.shape);
    finish();
    make_naive();
  }

  void measure_all() {
    for (const uint64_t tokens : plan_.token_counts) {
      shape_ = plan_.shape;
      shape_.tokens = tokens;
      routing_ = std::make_unique<bench::ep_routing>(shape_);
      bytes_ = static_cast<double>(routing_->routed_rows() * row_bytes_);
      load_case();
      op_ = std::make_unique<bench::ep_operator>(context_.handle(), shape_, plan_.launch, inputs_,
                                                 indices_, stream_);
      measure_calls();
      measure_graphs();
      op_->check();
      op_.reset();
      shared_.ranks.wait();
    }
  }

 private:
  static mori::shmem::context join(int rank, board& shared, const ep_plan& plan) {
    if (rank == 0) shared.id = mori::shmem::make_unique_id().value();
    shared.ranks.wait();
    auto options = mori::shmem::options(rank, plan.shape.ranks);
    options.backend = MORI_BACKEND_NVIDIA;
    options.heap_bytes = bench::ep_symmetric_bytes(plan.shape, plan.launch) +
                         plan.shape.capacity() * plan.shape.hidden * sizeof(std::uint16_t) +
                         (uint64_t{64} << 20);
    options.wait_timeout_ns = 20'000'000'000;
    return mori::shmem::context::create(shared.id, options).value();
  }

  static bench::ep_inputs make_inputs(const bench::ep_shape& of) {
    return {bench::device_memory<std::uint16_t>(of.tokens * of.hidden),
            bench::device_memory<std::uint8_t>(of.tokens * of.hidden),
            bench::device_memory<float>(of.tokens * bench::scale_dim),
            bench::device_memory<float>(of.tokens * bench::top_k)};
  }

  void finish() const {
    bench::check_launch();
    must(cudaStreamSynchronize(stream_), "kernel");
  }

  void* symmetric(uint64_t bytes) {
    void* memory = nullptr;
    mori::detail::call(mori_shmem_malloc, context_.handle(), bytes, &memory).value();
    return memory;
  }

  void make_naive() {
    auto* rows = static_cast<unsigned char*>(symmetric(plan_.shape.capacity() * row_bytes_));
    auto* words = static_cast<unsigned char*>(symmetric(64 * bench::most_ranks));
    naive_.peers.rank = rank_;
    naive_.peers.ranks = plan_.shape.ranks;
    for (int peer = 0; peer < plan_.shape.ranks; ++peer) {
      naive_.peers.rows[peer] = context_.peer_pointer(rows, peer).value();
      naive_.peers.words[peer] = context_.peer_pointer(words, peer).value();
    }
    naive_.arrived = bench::device_memory<unsigned>(1);
    naive_sent_ = bench::device_memory<bench::sent_row>(plan_.shape.tokens * bench::top_k);
    naive_first_ = bench::device_memory<std::uint32_t>(plan_.shape.tokens + 1);
    factors_ = bench::device_memory<std::uint32_t>(plan_.shape.tokens);
    destinations_ = bench::device_memory<std::uint32_t>(plan_.shape.tokens);
    naive_out_ = bench::device_memory<std::uint16_t>(plan_.shape.tokens * plan_.shape.hidden);
  }

  // What depends on the routing of this token count.
  void load_case() {
    const auto& experts = routing_->experts();
    bench::to_device(all_experts_, experts.data(), experts.size());
    bench::to_device(indices_, &experts[static_cast<size_t>(rank_) * shape_.tokens * bench::top_k],
                     shape_.tokens * bench::top_k);
    const auto factors = routing_->sums(rank_, bench::answer_factor);
    const auto destinations = routing_->sums(rank_, [](unsigned) { return 1u; });
    bench::to_device(factors_, factors.data(), factors.size());
    bench::to_device(destinations_, destinations.data(), destinations.size());
    const auto& sent = routing_->sent(rank_);
    bench::to_device(naive_sent_, sent.data(), sent.size());
    std::vector<std::uint32_t> first(1, 0);
    for (const std::uint32_t count : destinations) first.push_back(first.back() + count);
    bench::to_device(naive_first_, first.data(), first.size());
    naive_.sent = naive_sent_;
    naive_.first = naive_first_;
    naive_.sent_count = sent.size();
    naive_.tokens = shape_.tokens;
  }

  // --- What is measured --------------------------------------------------------------------------

  void measure_calls() {
    for (int sample = -1; sample < plan_.samples; ++sample) {
      prints_ = rank_ == 0 && sample >= 0;
      time("dispatch", "bf16", "ours", [&] { op_->dispatch(MORI_EP_BF16); });
      check_dispatch(MORI_EP_BF16);
      prepare_answers(nullptr);
      time("combine", "bf16", "ours", [&] { op_->combine(op_->received().out); });
      check_combine(op_->combined().out, op_->combined().weights, factors_);
      prepare_answers(external_);
      time("combine_external", "bf16", "ours", [&] { op_->combine(external_); });
      check_combine(op_->combined().out, op_->combined().weights, factors_);
      time("layer", "bf16", "ours", [&] { layer(); });
      check_combine(op_->combined().out, op_->combined().weights, destinations_);
      time("dispatch", "f8", "ours", [&] { op_->dispatch(MORI_EP_F8_E4M3FN); });
      check_dispatch(MORI_EP_F8_E4M3FN);
      measure_naive();
      // The process that copies has the GPU to itself.
      shared_.everyone.wait();
      shared_.everyone.wait();
    }
  }

  void layer() {
    op_->dispatch(MORI_EP_BF16);
    op_->combine(op_->received().out);
  }

  // A dispatch whose experts have answered: into `to`, or in place where it is null.
  void prepare_answers(std::uint16_t* to) {
    op_->dispatch(MORI_EP_BF16);
    auto* out = static_cast<std::uint16_t*>(op_->received().out);
    bench::answer<<<256, 512, 0, stream_>>>(to == nullptr ? out : to, out,
                                            routing_->received(rank_).size() * shape_.hidden,
                                            bench::answer_factor(static_cast<unsigned>(rank_)));
    finish();
  }

  void measure_naive() {
    time("dispatch", "f8", "naive", [&] { naive_dispatch(inputs_.f8, shape_.hidden); });
    check_naive_rows(MORI_EP_F8_E4M3FN);
    time("dispatch", "bf16", "naive", [&] { naive_dispatch(inputs_.bf16, row_bytes_); });
    check_naive_rows(MORI_EP_BF16);
    time("combine", "bf16", "naive", [&] {
      naive_.row_bytes = row_bytes_;
      next_naive_epoch();
      bench::naive_combine<<<naive_blocks(), bench::naive_lanes, 0, stream_>>>(
          naive_, reinterpret_cast<unsigned char*>(naive_out_));
    });
    check_combine(naive_out_, nullptr, destinations_);
  }

  void naive_dispatch(const void* input, uint64_t row_bytes) {
    naive_.row_bytes = row_bytes;
    next_naive_epoch();
    bench::naive_dispatch<<<naive_blocks(), bench::naive_lanes, 0, stream_>>>(
        naive_, static_cast<const unsigned char*>(input));
  }
  // A combine uses two.
  void next_naive_epoch() { naive_.epoch += 2; }
  unsigned naive_blocks() const { return static_cast<unsigned>(multiprocessors_) * 3; }

  void measure_graphs() {
    measure_graph(
        "dispatch", [] {}, [&] { op_->dispatch(MORI_EP_BF16); },
        [&] { check_dispatch(MORI_EP_BF16); });
    measure_graph(
        "combine", [&] { prepare_answers(nullptr); }, [&] { op_->combine(op_->received().out); },
        [&] { check_combine(op_->combined().out, op_->combined().weights, factors_); });
    measure_graph(
        "layer", [] {}, [&] { layer(); },
        [&] { check_combine(op_->combined().out, op_->combined().weights, destinations_); });
  }

  template <class Prepare, class Call, class Check>
  void measure_graph(const char* what, Prepare prepare, Call call, Check check) {
    if (!is_wanted(case_name(what, "bf16", shape_.tokens, shape_.ranks))) return;
    prepare();
    const cudaGraphExec_t graph = capture(what, call);
    if (graph == nullptr) return;
    for (int sample = -1; sample < plan_.samples; ++sample) {
      prints_ = rank_ == 0 && sample >= 0;
      prepare();
      time(what, "bf16", "graph",
           [&] { must(cudaGraphLaunch(graph, stream_), "launch of a graph"); });
      check();
    }
    must(cudaGraphExecDestroy(graph), "graph");
  }

  // The call as a graph; null where any rank could not capture it.
  template <class Call>
  cudaGraphExec_t capture(const char* what, Call call) {
    std::string problem;
    must(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "begin of a capture");
    try {
      call();
    } catch (const std::exception& failure) {
      problem = failure.what();
    }
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cudaError_t status = cudaStreamEndCapture(stream_, &graph);
    if (status == cudaSuccess && problem.empty())
      status = cudaGraphInstantiate(&executable, graph, 0);
    if (status != cudaSuccess && problem.empty()) problem = cudaGetErrorString(status);
    if (graph != nullptr) cudaGraphDestroy(graph);
    static_cast<void>(cudaGetLastError());
    shared_.captured[rank_] = problem.empty() ? 1 : 0;
    shared_.ranks.wait();
    const int* end = shared_.captured + shape_.ranks;
    const bool all = std::find(static_cast<const int*>(shared_.captured), end, 0) == end;
    shared_.ranks.wait();
    if (!problem.empty() && rank_ == 0)
      std::fprintf(stderr, "no graph of %s: %s\n", what, problem.c_str());
    return all ? executable : nullptr;
  }

  bool is_wanted(const std::string& name) const {
    return name.find(plan_.only) != std::string::npos;
  }

  // Enqueues one call, in which the ranks meet, then times as many as the plan says. All ranks
  // leave with everything done.
  template <class Call>
  void time(const char* what, const char* dtype, const char* who, Call call) {
    const std::string name = case_name(what, dtype, shape_.tokens, shape_.ranks);
    const int calls = is_wanted(name) ? plan_.calls(shape_.tokens) : 0;
    shared_.ranks.wait();
    call();
    timer_.start(stream_);
    const uint64_t start_ns = bench::now_ns();
    for (int i = 0; i < calls; ++i) call();
    const uint64_t enqueued_ns = bench::now_ns();
    timer_.stop(stream_);
    finish();
    if (calls != 0) {
      shared_.spent_ns[rank_] = timer_.elapsed_ns() / calls;
      shared_.host_ns[rank_] = static_cast<double>(enqueued_ns - start_ns) / calls;
    }
    shared_.ranks.wait();
    if (!prints_ || calls == 0) return;
    const double bytes = std::string_view(dtype) == "f8" ? bytes_ / 2 : bytes_;
    const double slowest = *std::max_element(shared_.spent_ns, shared_.spent_ns + shape_.ranks);
    pending_ = [=, this, host_ns = shared_.host_ns[0]] {
      print_rate(name, who, bytes, slowest);
      std::printf("call_%s_ns/host_%s %.1f\n", name.c_str(), who, host_ns);
    };
  }

  // --- Checks ------------------------------------------------------------------------------------

  // What was timed last is printed once all ranks have found its results right.
  void print_if_right(bool right, const char* what) {
    if (!right) bench::give_up(what);
    shared_.ranks.wait();
    if (pending_) pending_();
    pending_ = nullptr;
  }

  bool is_nothing_wrong() const {
    finish();
    bench::wrong_count wrong = 0;
    bench::to_host(&wrong, wrong_, 1);
    return wrong == 0;
  }

  void check_dispatch(std::int32_t dtype) {
    const auto& expected = routing_->received(rank_);
    std::int32_t received = 0;
    op_->check();
    bench::to_host(&received, op_->received().recv_count, 1);
    const uint64_t count = op_->positions(positions_);
    if (count != expected.size() || static_cast<uint64_t>(received) != count)
      bench::give_up("dispatch received another number of rows than were sent");
    std::vector<std::int32_t> sorted(positions_, positions_ + count);
    std::sort(sorted.begin(), sorted.end());
    if (sorted != expected) bench::give_up("dispatch received rows of other tokens than were sent");
    const mori_ep_dispatch_result& got = op_->received();
    const bool f8 = dtype == MORI_EP_F8_E4M3FN;
    check_rows({f8 ? nullptr : static_cast<const std::uint16_t*>(got.out),
                f8 ? static_cast<const std::uint8_t*>(got.out) : nullptr,
                f8 ? static_cast<const float*>(got.scales) : nullptr, got.weights, got.indices,
                positions_, count},
               "dispatch delivered a wrong row");
  }

  void check_naive_rows(std::int32_t dtype) {
    const auto& expected = routing_->received(rank_);
    std::copy(expected.begin(), expected.end(), positions_);
    const unsigned char* rows = naive_.peers.rows[rank_];
    const bool f8 = dtype == MORI_EP_F8_E4M3FN;
    check_rows({f8 ? nullptr : reinterpret_cast<const std::uint16_t*>(rows), f8 ? rows : nullptr,
                nullptr, nullptr, nullptr, positions_, expected.size()},
               "the naive dispatch delivered a wrong row");
    shared_.ranks.wait();
  }

  void check_rows(const bench::ep_received& got, const char* what) {
    must(cudaMemsetAsync(wrong_, 0, sizeof *wrong_, stream_), "clear");
    bench::check_received<<<256, 256, 0, stream_>>>(got, all_experts_, shape_, wrong_);
    print_if_right(is_nothing_wrong(), what);
  }

  void check_combine(const void* out, const float* weights, const std::uint32_t* factors) {
    op_->check();
    must(cudaMemsetAsync(wrong_, 0, sizeof *wrong_, stream_), "clear");
    bench::check_combined<<<256, 256, 0, stream_>>>(
        bench::ep_combined{static_cast<const std::uint16_t*>(out), weights, factors, destinations_},
        static_cast<unsigned>(rank_), shape_, wrong_);
    print_if_right(is_nothing_wrong(), "a combine gave a wrong sum");
  }

  const int rank_;
  board& shared_;
  const ep_plan& plan_;
  const int multiprocessors_;
  mori::shmem::context context_;
  const uint64_t row_bytes_;  // bf16
  const bench::ep_inputs inputs_;
  std::int32_t* const indices_;
  std::int32_t* const all_experts_;
  std::uint16_t* const external_;
  bench::wrong_count* const wrong_;
  cudaStream_t stream_{};
  bench::event_timer timer_;
  std::int32_t* positions_ = nullptr;
  bench::ep_shape shape_{};
  double bytes_ = 0;
  std::unique_ptr<bench::ep_routing> routing_;
  std::unique_ptr<bench::ep_operator> op_;
  bench::naive_work naive_{};
  bench::sent_row* naive_sent_ = nullptr;
  std::uint32_t* naive_first_ = nullptr;
  std::uint32_t* factors_ = nullptr;
  std::uint32_t* destinations_ = nullptr;
  std::uint16_t* naive_out_ = nullptr;
  bool prints_ = false;
  std::function<void()> pending_;
};

// --- The process that copies ---------------------------------------------------------------------

void measure_copy(const std::string& name, unsigned char* memory, size_t bytes) {
  bench::event_timer timer;
  constexpr int copies = 5;
  for (int i = -1; i < copies; ++i) {
    if (i == 0) timer.start(nullptr);
    must(cudaMemcpyAsync(memory + bytes, memory, bytes, cudaMemcpyDeviceToDevice, nullptr), "copy");
  }
  timer.stop(nullptr);
  print_rate(name, "copy", static_cast<double>(bytes), timer.elapsed_ns() / copies);
}

void copy_all(board& shared, const ep_plan& plan) {
  // It computes when nobody else does, so it may have all of the GPU.
  ::setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100", 1);
  bench::use_gpu();
  for (const uint64_t tokens : plan.token_counts) {
    bench::ep_shape shape = plan.shape;
    shape.tokens = tokens;
    const size_t bytes = bench::ep_routing(shape).routed_rows() * shape.hidden * 2;
    auto* memory = bench::device_memory<unsigned char>(2 * bytes);
    for (int sample = -1; sample < plan.samples; ++sample) {
      shared.everyone.wait();
      if (sample >= 0) {
        measure_copy(case_name("payload", "bf16", tokens, shape.ranks), memory, bytes);
        measure_copy(case_name("payload", "f8", tokens, shape.ranks), memory, bytes / 2);
      }
      shared.everyone.wait();
    }
    must(cudaFree(memory), "free");
  }
}

bool parse(int argc, char** argv, ep_plan& plan) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--quick") {
      plan.samples = 5;
      plan.large_calls = 12;
      plan.small_calls = 100;
      continue;
    }
    if (i == 1) {
      plan.shape.ranks = std::atoi(argv[i]);
      continue;
    }
    if (word == "--tokens")
      plan.token_counts = {static_cast<uint64_t>(std::atoll(value))};
    else if (word == "--blocks")
      plan.launch.blocks = std::atoi(value);
    else if (word == "--warps")
      plan.launch.warps = std::atoi(value);
    else if (word == "--only")
      plan.only = value;
    else
      return false;
    ++i;
  }
  plan.shape.tokens = *std::max_element(plan.token_counts.begin(), plan.token_counts.end());
  const int ranks = plan.shape.ranks;
  return plan.shape.tokens > 0 && (ranks == 2 || ranks == 4 || ranks == 8);
}

}  // namespace

int main(int argc, char** argv) {
  ep_plan plan;
  if (!parse(argc, argv, plan)) {
    std::fputs(
        "usage: ep_gpu 2|4|8 [--quick] [--tokens N] [--blocks N] [--warps N]"
        " [--only TEXT]\n",
        stderr);
    return 2;
  }
  // Two processes print: whole lines.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  auto& shared = bench::shared_object<board>();
  shared.ranks.prepare(plan.shape.ranks);
  shared.everyone.prepare(plan.shape.ranks + 1);
  const bool well = bench::process_group::run(plan.shape.ranks + 1, 150, [&](int index) {
    if (index == plan.shape.ranks) {
      copy_all(shared, plan);
    } else {
      rank_of_benchmark(index, shared, plan).measure_all();
    }
  });
  return well ? 0 : 1;
}
