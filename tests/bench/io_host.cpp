// io_host.cpp - what transfers of libmori-io cost between two processes of this machine, beside
// what a bare socket and memcpy give. The program measures everything once, ours and the plain way
// in turn, and prints "NAME VALUE" lines; compare.py runs it several times and makes ratios of
// medians.
//
//   usage: io_host shm|tcp [--smoke]
//
// Names are WHAT/WHO; values are nanoseconds, or bytes per second for *_bandwidth. Who is
//   ours     trusted security (tcp), memory of mori_io_alloc (shm); waits sleep in the kernel
//   spin     the same with engines that poll for 1 ms before they sleep
//   mac      the same as ours with the MAC over bulk data that is the default
//   attach   ordinary memory instead of mori_io_alloc's
//   raw, raw_spin   one TCP stream (raw_socket.hpp); memcpy: into memory that both processes map
// and what
//   write_SIZE_latency      from the submission of one write to its completion, waited for; beside
//                           it, the round trip of as many bytes there and 8 back
//   write_SIZE_bBATCH_bandwidth, read_...   transfers of BATCH pieces, several in flight, that walk
//                           through the whole extent in an order in which no two pieces can be
//                           merged; memcpy and the stream walk through the same memory
//   submit_128              the call of mori_io_submit alone, for 128 pieces of 8 bytes: one piece
#include "clock.hpp"
#include "processes.hpp"
#include "raw_socket.hpp"

#include <mori/io.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace bench = mori_bench;
using std::size_t;
using std::uint64_t;

constexpr size_t kibibyte = 1024, mebibyte = 1024 * kibibyte;
constexpr uint64_t timeout_ns = 60'000'000'000;
constexpr size_t most_packed = 4096;

struct packed {
  std::byte bytes[most_packed];
  uint64_t size;
};

struct board {
  bench::meeting meeting;
  packed engine[2];
  packed memory[2];
  std::uint16_t port;
};

// How much is moved.
struct scale {
  uint64_t small_count = 20'000;
  size_t total_bytes = size_t{1} << 30;
  size_t extent = size_t{256} * mebibyte;
  size_t large = size_t{64} * mebibyte;
};

struct size_name {
  const char* name;
  size_t bytes;
};

void check(mori_status status, const mori_error& error) {
  if (status != MORI_OK) bench::give_up(error.message);
}

// --- One side of a pair of engines --------------------------------------------------------------

struct engine_kind {
  int32_t backend;
  int32_t security = MORI_IO_SECURITY_TRUSTED;
  uint64_t spin_ns = 0;
  bool shared_memory = false;
};

// An engine with one region and, on side 0, a session to the other's.
class endpoint {
 public:
  endpoint(int side, board& shared, const engine_kind& kind, std::byte* memory, size_t extent)
      : memory_(memory) {
    mori_io_options options{};
    options.struct_size = sizeof options;
    options.in_key = side == 0 ? "bench-0" : "bench-1";
    options.in_host = "127.0.0.1";
    options.security = kind.security;
    options.spin_ns = kind.spin_ns;
    check(mori_io_create(&options, &io_, &error_), error_);
    mori_io_backend_options with{};
    with.struct_size = sizeof with;
    check(mori_io_backend_create(io_, kind.backend, &with, &error_), error_);
    if (kind.shared_memory) {
      void* allocated = nullptr;
      check(mori_io_alloc(io_, extent, &allocated, &error_), error_);
      memory_ = static_cast<std::byte*>(allocated);
      std::memcpy(memory_, memory, extent);
    }
    uint32_t id = 0;
    check(mori_io_memory_register(io_, memory_, extent, MORI_IO_LOCATION_CPU, -1, 0, &id, &error_),
          error_);
    packed& engine = shared.engine[side];
    packed& region = shared.memory[side];
    engine.size = region.size = most_packed;
    check(mori_io_desc(io_, engine.bytes, &engine.size, &error_), error_);
    check(mori_io_memory_desc(io_, id, region.bytes, &region.size, &error_), error_);
    shared.meeting.wait();
    const packed& peer = shared.engine[1 - side];
    check(mori_io_remote_register(io_, peer.bytes, peer.size, &error_), error_);
    shared.meeting.wait();
    if (side == 0) {
      const packed& target = shared.memory[1];
      check(mori_io_session_create(io_, id, target.bytes, target.size, nullptr, &session_, &error_),
            error_);
    }
  }
  ~endpoint() {
    mori_io_session_destroy(session_);
    mori_io_destroy(io_);
  }
  endpoint(const endpoint&) = delete;
  endpoint& operator=(const endpoint&) = delete;

  mori_io_transfer* submit(const mori_io_request& request) {
    mori_io_transfer* transfer = nullptr;
    check(mori_io_submit(session_, &request, &transfer, &error_), error_);
    return transfer;
  }

  void finish(mori_io_transfer* transfer) {
    check(mori_io_transfer_wait(&transfer, 1, timeout_ns, &error_), error_);
    mori_io_transfer_release(transfer);
  }

  // So that notifications do not pile up in the target.
  void forget_inbound() {
    mori_io_inbound inbound{};
    inbound.struct_size = sizeof inbound;
    while (mori_io_inbound_next(io_, &inbound, nullptr) == MORI_OK) {
    }
  }

  std::byte* memory() const { return memory_; }

 private:
  mori_io* io_ = nullptr;
  mori_io_session* session_ = nullptr;
  std::byte* memory_;
  mori_error error_ = MORI_ERROR_INIT;
};

// The pieces of a batch: places of `bytes` in the extent, taken so that neighbours in the list are
// no neighbours in memory. The same places on either side.
class pieces {
 public:
  pieces(size_t batch, size_t bytes, size_t extent)
      : places_(std::max<size_t>(1, extent / bytes)), offsets_(batch), sizes_(batch, bytes) {
    // A step without a common factor with the number of places visits all of them.
    step_ = places_ / 2 + 1;
    while (places_ > 1 && std::gcd(step_, places_) != 1) ++step_;
  }

  mori_io_request next(int32_t operation) {
    for (size_t i = 0; i < offsets_.size(); ++i) {
      offsets_[i] = at_ * sizes_[i];
      at_ = (at_ + step_) % places_;
    }
    mori_io_request request{};
    request.struct_size = sizeof request;
    request.operation = operation;
    request.piece_count = offsets_.size();
    request.in_local_offsets = request.in_remote_offsets = offsets_.data();
    request.in_sizes_bytes = sizes_.data();
    request.uid = ++uid_;
    return request;
  }

  size_t bytes() const { return offsets_.size() * sizes_[0]; }

 private:
  size_t places_, step_ = 1, at_ = 0;
  std::vector<uint64_t> offsets_, sizes_;
  uint64_t uid_ = 0;
};

// --- Measurements -------------------------------------------------------------------------------

class side_of_benchmark {
 public:
  side_of_benchmark(int side, board& shared, std::byte* mapped, const scale& how)
      : side_(side),
        shared_(shared),
        mapped_(mapped),
        how_(how),
        memory_(bench::touched_memory(how.extent)) {
    // The source's bytes differ from page to page; the target's are something else.
    for (size_t i = 0; i < how.extent; i += 8) {
      const uint64_t value = side == 0 ? i * 0x9e3779b97f4a7c15u + 1 : 0;
      std::memcpy(memory_ + i, &value, sizeof value);
    }
    bench::stay_on_core(side);
  }

  void measure_tcp() {
    bench::raw_socket raw(side_, shared_.port, shared_.meeting);
    raw_ = &raw;
    in_pair({MORI_IO_BACKEND_TCP}, [&](endpoint& mine) {
      measure_latencies(mine, "ours", "raw", false);
      for (const size_t batch : {size_t{1}, size_t{128}})
        for (const size_name& size : sizes()) measure_bandwidth(mine, {size, batch, "ours"});
      measure_bandwidth(mine, {sizes()[3], 1, "ours", MORI_IO_READ});
      measure_submission(mine);
    });
    in_pair({.backend = MORI_IO_BACKEND_TCP, .spin_ns = 1'000'000},
            [&](endpoint& mine) { measure_latencies(mine, "spin", "raw_spin", true); });
    in_pair({MORI_IO_BACKEND_TCP, MORI_IO_SECURITY_MAC}, [&](endpoint& mine) {
      measure_latencies(mine, "mac", nullptr, false);
      for (const size_t at : {2, 3}) measure_bandwidth(mine, {sizes()[at], 1, "mac"});
    });
  }

  void measure_shm() {
    in_pair({.backend = MORI_IO_BACKEND_XGMI, .shared_memory = true}, [&](endpoint& mine) {
      measure_latencies(mine, "ours", nullptr, false);
      for (const size_t batch : {size_t{1}, size_t{128}})
        for (const size_name& size : sizes()) measure_bandwidth(mine, {size, batch, "ours"});
      measure_bandwidth(mine, {sizes()[3], 1, "ours", MORI_IO_READ});
      measure_submission(mine);
    });
    in_pair({MORI_IO_BACKEND_XGMI}, [&](endpoint& mine) {
      for (const size_t at : {2, 3}) measure_bandwidth(mine, {sizes()[at], 1, "attach"});
    });
  }

 private:
  struct stream {
    size_name size;
    size_t batch;
    const char* who;
    int32_t operation = MORI_IO_WRITE;
  };

  std::array<size_name, 5> sizes() const {
    return {{{"8B", 8},
             {"4KiB", 4 * kibibyte},
             {"64KiB", 64 * kibibyte},
             {"1MiB", mebibyte},
             {"64MiB", how_.large}}};
  }

  void meet() { shared_.meeting.wait(); }

  static void print(const std::string& name, double value) {
    std::printf("%s %.3f\n", name.c_str(), value);
  }

  // Both sides with an engine each; `body` runs on both, and measures on side 0.
  void in_pair(const engine_kind& kind, const std::function<void(endpoint&)>& body) {
    if (side_ == 1) std::memset(memory_, 0, how_.extent);
    meet();
    endpoint mine(side_, shared_, kind, memory_, how_.extent);
    body(mine);
    meet();
    if (side_ == 1) verify(mine);
    meet();
  }

  // Every byte that arrived is the source's: side 1 knows them by their place.
  void verify(const endpoint& mine) const {
    size_t arrived = 0;
    for (size_t i = 0; i < how_.extent; i += 8) {
      uint64_t value = 0;
      std::memcpy(&value, mine.memory() + i, sizeof value);
      if (value == 0) continue;
      if (value != i * 0x9e3779b97f4a7c15u + 1) bench::give_up("wrong bytes have arrived");
      ++arrived;
    }
    if (arrived == 0) bench::give_up("nothing has arrived");
  }

  // --- latency ----------------------------------------------------------------------------------

  void measure_latencies(endpoint& mine, const char* who, const char* raw_who, bool spin) {
    for (const size_name& size : {sizes()[0], sizes()[1], sizes()[2]}) {
      const uint64_t count = size.bytes <= 4096 ? how_.small_count : how_.small_count / 4;
      const std::string what = "write_" + std::string(size.name) + "_latency/";
      meet();
      if (side_ == 0) print(what + who, write_latency(mine, size.bytes, count));
      meet();
      mine.forget_inbound();
      if (raw_who == nullptr) continue;
      const double took = raw_->round_trip(side_, mapped_, size.bytes, count, spin);
      if (side_ == 0) print(what + raw_who, took);
    }
  }

  double write_latency(endpoint& mine, size_t bytes, uint64_t count) {
    pieces one(1, bytes, bytes);
    bench::stamps times;
    const uint64_t warm_up = count / 10 + 1;
    for (uint64_t n = 0; n < warm_up + count; ++n) {
      if (n == warm_up) times.begin();
      mine.finish(mine.submit(one.next(MORI_IO_WRITE)));
      times.take();
    }
    return times.median_ns();
  }

  // --- bandwidth --------------------------------------------------------------------------------

  void measure_bandwidth(endpoint& mine, const stream& of) {
    const std::string what = (of.operation == MORI_IO_WRITE ? "write_" : "read_") +
                             std::string(of.size.name) + "_b" + std::to_string(of.batch) +
                             "_bandwidth/";
    const size_t request = of.size.bytes * of.batch;
    // Of small pieces, as many as take about as long.
    const size_t most = std::max<size_t>(how_.small_count * of.batch / 4, 4);
    const size_t total = std::min(how_.total_bytes, of.size.bytes * most);
    const uint64_t count = std::max<uint64_t>(1, total / request);
    meet();
    if (side_ == 0) {
      const double took = repeat(mine, of, count);
      print(what + of.who, static_cast<double>(request * count) * 1e9 / took);
    }
    meet();
    mine.forget_inbound();
    if (of.size.bytes < 4096 || std::string_view(of.who) != "ours") return;
    if (raw_ != nullptr) {
      const double took = raw_->stream(side_, memory_, how_.extent, how_.total_bytes);
      if (side_ == 0) print(what + "raw", static_cast<double>(how_.total_bytes) * 1e9 / took);
    } else if (side_ == 0) {
      print(what + "memcpy", copy_bandwidth(of));
    }
    meet();
  }

  // Nanoseconds of `count` transfers, several in flight.
  double repeat(endpoint& mine, const stream& of, uint64_t count) {
    pieces some(of.batch, of.size.bytes, how_.extent);
    const size_t window = std::clamp<size_t>(32 * mebibyte / some.bytes(), 2, 64);
    std::deque<mori_io_transfer*> in_flight;
    mine.finish(mine.submit(some.next(of.operation)));
    const uint64_t start = bench::now_ns();
    for (uint64_t n = 0; n < count; ++n) {
      if (in_flight.size() == window) {
        mine.finish(in_flight.front());
        in_flight.pop_front();
      }
      in_flight.push_back(mine.submit(some.next(of.operation)));
    }
    for (mori_io_transfer* transfer : in_flight) mine.finish(transfer);
    return static_cast<double>(bench::now_ns() - start);
  }

  // memcpy of the same pieces in the same order, into memory that the other process maps too.
  double copy_bandwidth(const stream& of) const {
    pieces some(1, of.size.bytes, how_.extent);
    const uint64_t count = std::max<uint64_t>(4, how_.total_bytes / of.size.bytes);
    const uint64_t start = bench::now_ns();
    for (uint64_t n = 0; n < count; ++n) {
      const mori_io_request piece = some.next(MORI_IO_WRITE);
      const uint64_t at = piece.in_local_offsets[0];
      std::memcpy(mapped_ + at, memory_ + at, of.size.bytes);
      std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    return static_cast<double>(count * of.size.bytes) * 1e9 /
           static_cast<double>(bench::now_ns() - start);
  }

  // --- submission -------------------------------------------------------------------------------

  void measure_submission(endpoint& mine) {
    constexpr size_t batch = 128;
    meet();
    if (side_ == 0) {
      pieces some(batch, 8, how_.extent);
      std::vector<uint64_t> took(std::max<uint64_t>(8, how_.small_count / 20));
      for (uint64_t& each : took) {
        const mori_io_request request = some.next(MORI_IO_WRITE);
        const uint64_t start = bench::now_ns();
        mori_io_transfer* transfer = mine.submit(request);
        each = bench::now_ns() - start;
        mine.finish(transfer);
      }
      std::nth_element(took.begin(), took.begin() + static_cast<std::ptrdiff_t>(took.size() / 2),
                       took.end());
      print("submit_128/ours", static_cast<double>(took[took.size() / 2]) / batch);
    }
    meet();
    mine.forget_inbound();
  }

  const int side_;
  board& shared_;
  std::byte* const mapped_;
  const scale how_;
  std::byte* const memory_;
  bench::raw_socket* raw_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc >= 2 ? argv[1] : "";
  const bool smoke = argc == 3 && std::string_view(argv[2]) == "--smoke";
  if ((what != "shm" && what != "tcp") || argc > 3 || (argc == 3 && !smoke)) {
    std::fputs("usage: io_host shm|tcp [--smoke]\n", stderr);
    return 2;
  }
  scale how;
  if (smoke) how = {200, 8 * mebibyte, 4 * mebibyte, 2 * mebibyte};
  auto& shared = bench::shared_object<board>();
  shared.meeting.prepare(2);
  std::byte* mapped = bench::touched_memory(how.extent, true);
  const bool well = bench::process_group::run(2, 150, [&](int side) {
    side_of_benchmark mine(side, shared, mapped, how);
    if (what == "tcp")
      mine.measure_tcp();
    else
      mine.measure_shm();
  });
  return well ? 0 : 1;
}
