// shmem_host.cpp - what puts and fetch-adds cost between two processes of this
// machine, by libmori-shmem and by plain stores to shared memory. The program
// measures everything once, ours and plain in turn, and prints "NAME VALUE" lines;
// compare.py runs it several times, in turn with ucx_perftest, and makes ratios of medians.
//
//   usage: shmem_host [--smoke]
//
// Names are WHAT/WHO: who is `ours` (the device API, inlined, as one lane),
// `ours_stamped` (the same with the per-operation stamp of ucx_perftest), `plain`, or `host` (a
// call of the C ABI). Values are nanoseconds, or bytes per second for *_bandwidth.
//
//   put_SIZE_latency     half of the median round trip: each side puts and polls its own memory for
//                        the answer. Above 8 bytes the put carries a signal, and the plain copy is
//                        followed by a release store.
//   put_SIZE_bandwidth   one source, one target, put again and again, completed at the end: what
//                        fits into a cache is there (as with ucx_perftest)
//   put_64KiB_skewed_bandwidth   the same, the target 16 bytes further into its page
//   put_cold_bandwidth   1 MiB puts that walk through 256 MiB on either side
//   put_8B_call, fetch_add   one after the other to one word
#include "clock.hpp"
#include "processes.hpp"
#include "resident.hpp"

#include <mori/device_api/shmem.hpp>
#include <mori/shmem.hpp>

#include <algorithm>
#include <array>
#include <atomic>
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
constexpr size_t large_bytes = mebibyte;
constexpr size_t most_skew = 16;
constexpr int slices = 3;  // measurements of each kind within one run, in turn

struct plain_side {
  alignas(4096) std::atomic<uint64_t> word;  // as far from each other as words in two heaps
};

struct board {
  mori_shmem_unique_id id;
  bench::meeting meeting;
  plain_side plain[2];
  alignas(64) std::atomic<uint64_t> counter;
};

// How often, and how large the memory is that no cache holds.
struct scale {
  uint64_t small_count = 200'000;
  uint64_t large_total_bytes = size_t{512} << 20;
  size_t cold_bytes = size_t{256} << 20;
  uint64_t count_for(size_t bytes) const {
    return bytes <= 8 ? small_count : std::max<uint64_t>(4, large_total_bytes / bytes);
  }
};

struct put_size {
  const char* name;
  size_t bytes;
};
constexpr put_size put_sizes[] = {{"8B", 8}, {"64KiB", 64 * 1024}, {"1MiB", large_bytes}};

// The measurements of one of the two PEs. PE 0 measures; PE 1 answers or sleeps.
class pe_of_benchmark {
 public:
  pe_of_benchmark(int pe, board& shared, std::byte* plain_memory, const scale& how)
      : pe_(pe),
        shared_(shared),
        how_(how),
        plain_(plain_memory),
        source_(bench::touched_memory(how.cold_bytes)),
        context_(join(pe, shared, how)),
        state_(context_.device_state<api::state>().value()),
        words_(context_.allocate<uint64_t>(64, 4096).value()),
        target_(context_.allocate<std::byte>(how.cold_bytes + most_skew, 4096).value()) {
    // After the context exists: its threads stay free to run where there is room.
    bench::stay_on_core(pe);
    // The target's pages are entered into this process's tables, as plain memory's are.
    std::memset(static_cast<void*>(context_.peer_pointer(target_.data(), 1 - pe).value()), 1,
                how.cold_bytes);
    std::memset(plain_, 1, how.cold_bytes);
  }

  void measure_all() {
    for (const put_size& size : put_sizes) measure_latency(size);
    measure_bandwidths();
    measure_fetch_add();
    measure_put_calls();
    if (pe_ == 0) print("resident_beyond_heap_bytes/ours", resident());
    meet();
  }

 private:
  static mori::shmem::context join(int pe, board& shared, const scale& how) {
    if (pe == 0) shared.id = mori::shmem::make_unique_id().value();
    shared.meeting.wait();
    auto options = mori::shmem::options(pe, 2);
    options.heap_bytes = how.cold_bytes + 16 * mebibyte;
    options.wait_timeout_ns = 60'000'000'000;
    return mori::shmem::context::create(shared.id, options).value();
  }

  void meet() { shared_.meeting.wait(); }

  uint64_t resident() const { return bench::resident_bytes_beyond_heaps() - how_.cold_bytes; }

  static void print(const std::string& name, uint64_t value) {
    std::printf("%s %llu\n", name.c_str(), static_cast<unsigned long long>(value));
  }
  static void print(const std::string& name, double value) {
    std::printf("%s %.3f\n", name.c_str(), value);
  }

  // One way of doing something; gives its nanoseconds or bytes per second, of interest on PE 0.
  struct way {
    const char* who;
    std::function<double()> once;
  };

  // All ways in turn, several times; PE 0 prints the median of each.
  void in_turn(const std::string& what, const std::vector<way>& ways) {
    std::vector<std::array<double, slices>> values(ways.size());
    for (int slice = 0; slice < slices; ++slice)
      for (size_t i = 0; i < ways.size(); ++i) {
        meet();
        values[i][static_cast<size_t>(slice)] = ways[i].once();
        meet();
      }
    if (pe_ != 0) return;
    for (size_t i = 0; i < ways.size(); ++i) {
      std::sort(values[i].begin(), values[i].end());
      print(what + "/" + ways[i].who, values[i][slices / 2]);
    }
  }

  // --- latency ----------------------------------------------------------------------------------

  // Half of the median round trip. send(n) sends message n, receive(n) waits for it.
  template <class Send, class Receive>
  double ping_pong(uint64_t count, Send send, Receive receive) const {
    bench::stamps stamps;
    const uint64_t warm_up = count / 10 + 1;
    for (uint64_t n = 1; n <= warm_up + count; ++n) {
      if (n == warm_up + 1) stamps.begin();
      if (pe_ == 0) send(n);
      receive(n);
      if (pe_ != 0) send(n);
      stamps.take();
    }
    return stamps.median_ns() / 2;
  }

  void measure_latency(const put_size& size) {
    const uint64_t count = how_.count_for(size.bytes) / (size.bytes <= 8 ? 1 : 2);
    in_turn("put_" + std::string(size.name) + "_latency",
            {{"ours",
              [&] {
                return size.bytes == 8 ? ping_pong_word(count)
                                       : ping_pong_signal(size.bytes, count);
              }},
             {"plain", [&] { return ping_pong_plain(size.bytes, count); }}});
  }

  // Message numbers go on from run to run, so that no word needs resetting.
  double ping_pong_word(uint64_t count) {
    const uint64_t base = next_message(count);
    uint64_t* word = words_.data();
    return ping_pong(
        count,
        [&](uint64_t n) {
          const uint64_t value = base + n;
          check(api::putmem_nbi(one_lane{}, state_, {word, &value, 8, 1 - pe_}));
        },
        [&](uint64_t n) { await(word, base + n); });
  }

  double ping_pong_signal(size_t bytes, uint64_t count) {
    const uint64_t base = next_message(count);
    uint64_t* word = words_.data();
    return ping_pong(
        count,
        [&](uint64_t n) {
          check(api::putmem_signal_nbi(one_lane{}, state_,
                                       {target_.data(), source_, bytes, 1 - pe_},
                                       {word, base + n, MORI_SHMEM_SIGNAL_SET}));
        },
        [&](uint64_t n) { await(word, base + n); });
  }

  double ping_pong_plain(size_t bytes, uint64_t count) {
    const uint64_t base = next_message(count);
    return ping_pong(
        count,
        [&](uint64_t n) {
          if (bytes > 8)
            std::memcpy(plain_ + static_cast<size_t>(pe_) * large_bytes, source_, bytes);
          shared_.plain[1 - pe_].word.store(base + n, std::memory_order_release);
        },
        [&](uint64_t n) {
          for (unsigned polls = 0;
               shared_.plain[pe_].word.load(std::memory_order_acquire) < base + n;)
            if (++polls > 100'000) ::sched_yield();
        });
  }

  uint64_t next_message(uint64_t count) {
    const uint64_t base = message_;
    message_ += 2 * count + 16;
    return base;
  }

  void await(const uint64_t* word, uint64_t value) const {
    const auto seen = api::wait_until(
        one_lane{}, state_, api::wait_request<uint64_t>{word, MORI_SHMEM_CMP_GE, value, 1 - pe_});
    if (!seen.met) bench::give_up("a put did not arrive");
  }

  static void check(std::int32_t status) {
    if (status != MORI_OK) bench::give_up(mori_shmem_status_name(status));
  }

  // --- bandwidth --------------------------------------------------------------------------------

  // Nanoseconds of one operation, on PE 0; PE 1 sleeps meanwhile.
  template <bool stamped, class Operation>
  double repeat(uint64_t count, Operation operation) const {
    if (pe_ != 0) return 0;
    bench::stamps stamps;
    stamps.begin();
    for (uint64_t n = 0; n < count / 10 + 1; ++n) operation(n);
    check(api::quiet(one_lane{}, state_));
    const uint64_t start_ns = bench::now_ns();
    for (uint64_t n = 0; n < count; ++n) {
      operation(n);
      if constexpr (stamped) stamps.take();
    }
    check(api::quiet(one_lane{}, state_));
    return static_cast<double>(bench::now_ns() - start_ns) / static_cast<double>(count);
  }

  static double per_second(size_t bytes, double operation_ns) {
    return operation_ns == 0 ? 0 : static_cast<double>(bytes) * 1e9 / operation_ns;
  }

  // Puts of `bytes` that step through `extent` bytes on either side; targets lie `skew` further.
  struct stream {
    size_t bytes;
    size_t extent;
    uint64_t count;
    size_t skew = 0;
  };

  template <bool stamped>
  double put_bandwidth(const stream& of) const {
    const size_t places = of.extent / of.bytes;
    return per_second(
        of.bytes, repeat<stamped>(of.count, [&](uint64_t n) {
          const size_t at = n % places * of.bytes;
          check(api::putmem_nbi(one_lane{}, state_,
                                {target_.data() + at + of.skew, source_ + at, of.bytes, 1 - pe_}));
        }));
  }

  double plain_bandwidth(const stream& of) const {
    const size_t places = of.extent / of.bytes;
    return per_second(of.bytes, repeat<false>(of.count, [&](uint64_t n) {
                        const size_t at = n % places * of.bytes;
                        std::memcpy(plain_ + at + of.skew, source_ + at, of.bytes);
                        // The compiler may not merge copies to one place.
                        std::atomic_signal_fence(std::memory_order_seq_cst);
                      }));
  }

  void measure_bandwidth(const std::string& what, const stream& of) {
    in_turn(what, {{"ours", [=, this] { return put_bandwidth<false>(of); }},
                   {"plain", [=, this] { return plain_bandwidth(of); }},
                   {"ours_stamped", [=, this] { return put_bandwidth<true>(of); }}});
  }

  void measure_bandwidths() {
    for (const put_size& size : put_sizes)
      measure_bandwidth("put_" + std::string(size.name) + "_bandwidth",
                        {size.bytes, size.bytes, how_.count_for(size.bytes)});
    const size_t middle = put_sizes[1].bytes;
    measure_bandwidth("put_64KiB_skewed_bandwidth",
                      {middle, middle, how_.count_for(middle) / 8, most_skew});
    measure_bandwidth("put_cold_bandwidth",
                      {large_bytes, how_.cold_bytes, how_.cold_bytes / large_bytes});
  }

  // --- single operations ------------------------------------------------------------------------

  void measure_fetch_add() {
    const uint64_t count = how_.small_count;
    uint64_t* word = words_.data() + 8;
    uint64_t sum = 0;  // of what was there before: a wrong sum means that nothing was added
    const auto ours = [&](uint64_t) {
      sum += api::atomic_fetch_add(one_lane{}, state_, word, uint64_t{1}, 1 - pe_);
    };
    const auto plain = [&](uint64_t) { sum += shared_.counter.fetch_add(1); };
    auto with = mori::shmem::atomic_args();
    with.target = word;
    with.value = 1;
    with.op = MORI_SHMEM_AMO_FETCH_ADD;
    with.pe = 1 - pe_;
    with.size_bytes = sizeof *word;
    const auto host = [&](uint64_t) {
      uint64_t before = 0;
      check(mori_shmem_atomic(context_.handle(), &with, &before, nullptr));
      sum += before;
    };
    in_turn("fetch_add", {{"ours", [&] { return repeat<false>(count, ours); }},
                          {"plain", [&] { return repeat<false>(count, plain); }},
                          {"ours_stamped", [&] { return repeat<true>(count, ours); }},
                          {"host", [&] { return repeat<false>(count, host); }}});
    if (pe_ == 0 && sum == 0) bench::give_up("fetch-adds added nothing");
  }

  void measure_put_calls() {
    const uint64_t count = how_.small_count;
    uint64_t* word = words_.data() + 16;
    const auto ours = [&](uint64_t n) {
      check(api::putmem_nbi(one_lane{}, state_, {word, &n, sizeof n, 1 - pe_}));
    };
    const auto host = [&](uint64_t n) {
      check(mori_shmem_put(context_.handle(), word, &n, sizeof n, 1 - pe_, nullptr));
    };
    in_turn("put_8B_call", {{"ours", [&] { return repeat<false>(count, ours); }},
                            {"host", [&] { return repeat<false>(count, host); }}});
  }

  const int pe_;
  board& shared_;
  const scale how_;
  std::byte* const plain_;
  std::byte* const source_;
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
    std::fputs("usage: shmem_host [--smoke]\n", stderr);
    return 2;
  }
  if (smoke) how = {1000, 8 * mebibyte, 4 * mebibyte};
  auto& shared = bench::shared_object<board>();
  shared.meeting.prepare(2);
  std::byte* plain = bench::touched_memory(how.cold_bytes + most_skew, true);
  const bool well = bench::process_group::run(
      2, 120, [&](int pe) { pe_of_benchmark(pe, shared, plain, how).measure_all(); });
  return well ? 0 : 1;
}
