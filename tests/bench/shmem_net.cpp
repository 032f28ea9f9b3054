// shmem_net.cpp - what puts cost between two processes of this machine that stand for two nodes,
// so that commands go through the ring and TCP, beside what a bare socket gives. The program
// measures everything once, ours and the plain way in turn, and prints "NAME VALUE" lines;
// compare.py runs it several times and makes ratios of medians.
//
//   usage: shmem_net [--smoke]
//
// Names are WHAT/WHO; values are nanoseconds, bytes per second for *_bandwidth, operations per
// second for *_rate. Who is `ours` (the device API, inlined, as one lane), `host` (calls of the C
// ABI), `raw` (one TCP stream, blocking calls) or `raw_spin` (asks again and again); and what
//   put_8B_quiet_latency     a put and the quiet that completes it; raw: 8 bytes there and 8 back
//   put_8B_signal_latency    half of a round trip of puts with signals, each awaited by a wait
//   put_1MiB_bandwidth       puts that walk through 64 MiB on either side, completed at the end
//   put_8B_rate              puts of 8 bytes, completed at the end
//   fetch_add_latency        one after the other, beside the same round trip
#include "clock.hpp"
#include "processes.hpp"
#include "raw_socket.hpp"

#include <mori/device_api/shmem.hpp>
#include <mori/shmem.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace api = mori::device_api;
namespace bench = mori_bench;
using mori::device::one_lane;
using std::size_t;
using std::uint64_t;

constexpr size_t mebibyte = size_t{1} << 20;
constexpr int slices = 3;  // measurements of each kind within one run, in turn

struct board {
  mori_shmem_unique_id id;
  bench::meeting meeting;
  std::uint16_t port;
};

struct scale {
  uint64_t small_count = 10'000;
  uint64_t rate_count = 1'000'000;
  size_t total_bytes = size_t{1} << 30;
  size_t extent = 64 * mebibyte;
};

void check(std::int32_t status) {
  if (status != MORI_OK) bench::give_up(mori_shmem_status_name(status));
}

// One of the two PEs, each on a node of its own. PE 0 measures; PE 1 answers or sleeps.
class pe_of_benchmark {
 public:
  pe_of_benchmark(int pe, board& shared, const scale& how)
      : pe_(pe),
        shared_(shared),
        how_(how),
        source_(bench::touched_memory(how.extent)),
        raw_(pe, shared.port, shared.meeting),
        context_(join(pe, shared, how)),
        state_(context_.device_state<api::state>().value()),
        words_(context_.allocate<uint64_t>(64, 4096).value()),
        target_(context_.allocate<std::byte>(how.extent, 4096).value()) {
    std::memset(target_.data(), 1, how.extent);
  }

  void measure_all() {
    measure_quiet();
    measure_signal();
    measure_fetch_add();
    measure_rate();
    measure_bandwidth();
    shared_.meeting.wait();
  }

 private:
  static mori::shmem::context join(int pe, board& shared, const scale& how) {
    if (::setenv("MORI_NODE_ID", pe == 0 ? "bench-0" : "bench-1", 1) != 0)
      bench::give_up("no environment");
    if (pe == 0) shared.id = mori::shmem::make_unique_id().value();
    shared.meeting.wait();
    auto options = mori::shmem::options(pe, 2);
    options.heap_bytes = how.extent + 16 * mebibyte;
    options.wait_timeout_ns = 60'000'000'000;
    return mori::shmem::context::create(shared.id, options).value();
  }

  // One way of doing something; gives its figure, of interest on PE 0.
  struct way {
    const char* who;
    std::function<double()> once;
  };

  // All ways in turn, several times; PE 0 prints the median of each.
  void in_turn(const char* what, const std::vector<way>& ways) {
    std::vector<std::array<double, slices>> values(ways.size());
    for (size_t slice = 0; slice < slices; ++slice)
      for (size_t i = 0; i < ways.size(); ++i) {
        shared_.meeting.wait();
        values[i][slice] = ways[i].once();
        shared_.meeting.wait();
      }
    if (pe_ != 0) return;
    for (size_t i = 0; i < ways.size(); ++i) {
      std::sort(values[i].begin(), values[i].end());
      std::printf("%s/%s %.3f\n", what, ways[i].who, values[i][slices / 2]);
    }
  }

  // Nanoseconds of the median operation, on PE 0.
  double latency(const std::function<void(uint64_t)>& operation) const {
    if (pe_ != 0) return 0;
    bench::stamps times;
    const uint64_t warm_up = how_.small_count / 10 + 1;
    for (uint64_t n = 0; n < warm_up + how_.small_count; ++n) {
      if (n == warm_up) times.begin();
      operation(n);
      times.take();
    }
    return times.median_ns();
  }

  double raw_round_trip(bool spin) const {
    return raw_.round_trip(pe_, source_, 8, how_.small_count, spin);
  }
  std::vector<way> beside_raw(std::vector<way> ours) const {
    ours.push_back({"raw", [this] { return raw_round_trip(false); }});
    ours.push_back({"raw_spin", [this] { return raw_round_trip(true); }});
    return ours;
  }

  void put_word(uint64_t value) const {
    check(api::putmem_nbi(one_lane{}, state_, {words_.data(), &value, 8, 1 - pe_}));
  }
  void quiet() const { check(api::quiet(one_lane{}, state_)); }

  void measure_quiet() {
    const auto device = [this](uint64_t n) {
      put_word(n);
      quiet();
    };
    const auto host = [this](uint64_t n) {
      check(mori_shmem_put(context_.handle(), words_.data(), &n, sizeof n, 1 - pe_, nullptr));
      check(mori_shmem_quiet(context_.handle(), nullptr));
    };
    in_turn("put_8B_quiet_latency", beside_raw({{"ours", [&] { return latency(device); }},
                                                {"host", [&] { return latency(host); }}}));
  }

  double signal_ping_pong() {
    uint64_t* word = words_.data() + 8;
    bench::stamps times;
    const uint64_t count = how_.small_count, warm_up = count / 10 + 1;
    for (uint64_t n = 1; n <= warm_up + count; ++n) {
      if (n == warm_up + 1) times.begin();
      if (pe_ == 0) send_signal(word, n);
      await(word, message_ + n);
      if (pe_ != 0) send_signal(word, n);
      times.take();
    }
    message_ += count + warm_up;
    return times.median_ns() / 2;
  }
  void send_signal(uint64_t* word, uint64_t n) const {
    check(api::putmem_signal_nbi(one_lane{}, state_, {target_.data(), source_, 8, 1 - pe_},
                                 {word, message_ + n, MORI_SHMEM_SIGNAL_SET}));
  }
  void await(const uint64_t* word, uint64_t value) const {
    const auto seen = api::wait_until(
        one_lane{}, state_, api::wait_request<uint64_t>{word, MORI_SHMEM_CMP_GE, value, 1 - pe_});
    if (!seen.met) bench::give_up("a signal did not arrive");
  }

  void measure_signal() {
    in_turn("put_8B_signal_latency", {{"ours", [this] { return signal_ping_pong(); }},
                                      {"raw", [this] { return raw_round_trip(false) / 2; }},
                                      {"raw_spin", [this] { return raw_round_trip(true) / 2; }}});
  }

  void measure_fetch_add() {
    uint64_t sum = 0;  // of what was there before: a wrong sum means that nothing was added
    const auto ours = [&](uint64_t) {
      sum += api::atomic_fetch_add(one_lane{}, state_, words_.data() + 16, uint64_t{1}, 1 - pe_);
    };
    in_turn("fetch_add_latency", beside_raw({{"ours", [&] { return latency(ours); }}}));
    if (pe_ == 0 && sum == 0) bench::give_up("fetch-adds added nothing");
  }

  void measure_rate() {
    in_turn("put_8B_rate", {{"ours", [this] {
                               if (pe_ != 0) return 0.0;
                               const uint64_t start_ns = bench::now_ns();
                               for (uint64_t n = 0; n < how_.rate_count; ++n) put_word(n);
                               quiet();
                               return static_cast<double>(how_.rate_count) * 1e9 /
                                      static_cast<double>(bench::now_ns() - start_ns);
                             }}});
  }

  double put_bandwidth() const {
    if (pe_ != 0) return 0;
    const uint64_t start_ns = bench::now_ns();
    for (size_t done = 0; done < how_.total_bytes; done += mebibyte) {
      const size_t at = done % how_.extent;
      check(api::putmem_nbi(one_lane{}, state_,
                            {target_.data() + at, source_ + at, mebibyte, 1 - pe_}));
    }
    quiet();
    return per_second(static_cast<double>(bench::now_ns() - start_ns));
  }
  double per_second(double ns) const { return static_cast<double>(how_.total_bytes) * 1e9 / ns; }

  void measure_bandwidth() {
    std::byte* memory = pe_ == 0 ? source_ : target_.data();
    in_turn("put_1MiB_bandwidth",
            {{"ours", [this] { return put_bandwidth(); }},
             {"raw", [this, memory] {
                return per_second(raw_.stream(pe_, memory, how_.extent, how_.total_bytes));
              }}});
  }

  const int pe_;
  board& shared_;
  const scale how_;
  std::byte* const source_;
  const bench::raw_socket raw_;
  mori::shmem::context context_;
  const api::state state_;
  mori::shmem::array<uint64_t> words_;
  mori::shmem::array<std::byte> target_;
  uint64_t message_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  scale how;
  const bool smoke = argc == 2 && std::string_view(argv[1]) == "--smoke";
  if (argc > 1 && !smoke) {
    std::fputs("usage: shmem_net [--smoke]\n", stderr);
    return 2;
  }
  if (smoke) how = {200, 2000, 8 * mebibyte, 4 * mebibyte};
  auto& shared = bench::shared_object<board>();
  shared.meeting.prepare(2);
  const bool well = bench::process_group::run(
      2, 180, [&](int pe) { pe_of_benchmark(pe, shared, how).measure_all(); });
  return well ? 0 : 1;
}
