// shmem_measure.hpp - the measurements of the shmem comparison, the same for both
// libraries: PEs are processes on one GPU (under MPS, which compare.py starts), and PE 0 prints
// "NAME VALUE" lines, one of each name a sample, of which compare.py takes medians.
//
//   signal_round_trip      ns: one lane stores a word at the peer, which answers
//   put_SIZE_round_trip    ns: a block puts SIZE bytes with a signal, the peer answers with as many
//   barrier_N              ns: device barrier of N PEs by one block each
//   put_256MiB             bytes per second: PE 0 puts 256 MiB by 32 blocks, PE 1 does nothing
//   put_256MiB_wide        the same by all blocks that its share of the GPU runs at once
//   copy_256MiB            the same by cudaMemcpyAsync, within memory of PE 0
//
// Round trips and barriers run in one launch and are timed by the clock of the GPU; puts by events
// around several launches. What arrived is compared before a number is printed.
//
// A Host is one PE of one library:
//   Host(pe, pe_count, identity&, meeting&)   joins;  Host::name   who measures
//   library()                                 what kernels take; see shmem_kernels.hpp
//   allocate(bytes)                           symmetric device memory, zeroed
//   barrier()                                 of hosts; what was put before is there after
#pragma once

#include "shmem_kernels.hpp"

#include <cstdlib>
#include <string_view>
#include <vector>

namespace mori_bench {

constexpr int most_pes = 64;
constexpr std::size_t mebibyte = std::size_t{1} << 20;

// A unique id of either library, as the first PE hands it to the others.
struct identity {
  unsigned char bytes[128];
};

struct shmem_board {
  identity id;
  meeting together;
};

struct shmem_plan {
  int pe_count = 2;
  int samples = 9;
  unsigned lanes = 512;              // of a block
  std::uint64_t round_trips = 4000;  // of 8 bytes; fewer where a message is larger
  std::uint64_t barriers = 4000;
  std::size_t bulk_bytes = 256 * mebibyte;
  unsigned bulk_blocks = 32;
  int bulk_launches = 12;
};

struct message_size {
  const char* name;
  std::size_t bytes;
};
constexpr message_size message_sizes[] = {{"8B", 8}, {"14336B", 14336}, {"64KiB", 64 * 1024}};

template <class Host>
class shmem_measurements {
 public:
  shmem_measurements(int pe, shmem_board& board, const shmem_plan& plan)
      : pe_(pe),
        plan_(plan),
        together_(board.together),
        multiprocessors_(use_gpu()),
        host_(pe, plan.pe_count, board.id, board.together),
        library_(host_.library()),
        words_(static_cast<std::uint64_t*>(host_.allocate(words_bytes))),
        spent_ns_(device_memory<std::uint64_t>(1)),
        wrong_(device_memory<unsigned long long>(1)) {
    must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    if (plan_.pe_count == 2) {
      source_ = static_cast<std::byte*>(host_.allocate(plan_.bulk_bytes));
      target_ = static_cast<std::byte*>(host_.allocate(plan_.bulk_bytes));
      fill_source<<<256, 256, 0, stream_>>>(source_, plan_.bulk_bytes, pe_);
    }
    finish();
    host_.barrier();
  }

  void measure_all() {
    for (int sample = -1; sample < plan_.samples; ++sample) {
      prints_ = pe_ == 0 && sample >= 0;
      if (plan_.pe_count == 2) {
        measure_signals();
        for (const message_size& size : message_sizes) measure_puts(size);
      }
      measure_barriers();
    }
    for (int sample = -1; plan_.pe_count == 2 && sample < plan_.samples; ++sample) {
      prints_ = pe_ == 0 && sample >= 0;
      measure_bulk("put_256MiB", plan_.bulk_blocks);
      measure_bulk("put_256MiB_wide", widest_grid());
      measure_copy();
    }
    host_.barrier();
  }

 private:
  static constexpr std::size_t words_bytes = 4096;

  void finish() {
    check_launch();
    must(cudaStreamSynchronize(stream_), "kernel");
  }

  void print(const std::string& what, double value) const {
    if (prints_) std::printf("%s/%s %.1f\n", what.c_str(), Host::name, value);
  }

  turns next_turns(std::uint64_t count) {
    const turns made{base_, count / 10 + 1, count};
    base_ += made.warm_up + made.count;
    return made;
  }

  // Nanoseconds of one turn of the launch that has just been enqueued.
  double turn_ns(const turns& how) {
    finish();
    std::uint64_t spent = 0;
    to_host(&spent, spent_ns_, 1);
    return static_cast<double>(spent) / static_cast<double>(how.count);
  }

  // --- Round trips and barriers ------------------------------------------------------------------

  void measure_signals() {
    const turns how = next_turns(plan_.round_trips);
    together_.wait();
    signal_round_trips<<<1, 1, 0, stream_>>>(library_, words_, how, spent_ns_);
    print("signal_round_trip", turn_ns(how));
  }

  void measure_puts(const message_size& size) {
    const turns how = next_turns(size.bytes <= 8 ? plan_.round_trips : plan_.round_trips / 4);
    clear_target(size.bytes);
    put_round_trips<<<1, plan_.lanes, 0, stream_>>>(
        library_, message{target_, source_, size.bytes, words_ + 8}, how, spent_ns_);
    const double spent = turn_ns(how);
    check_target(size.bytes, 1 - pe_);
    print("put_" + std::string(size.name) + "_round_trip", spent);
  }

  void measure_barriers() {
    const turns how = next_turns(plan_.barriers);
    together_.wait();
    barriers<<<1, plan_.lanes, 0, stream_>>>(library_, how, spent_ns_);
    print("barrier_" + std::to_string(plan_.pe_count), turn_ns(how));
  }

  // --- Bulk --------------------------------------------------------------------------------------

  // A power of two, so that it divides the bytes.
  unsigned widest_grid() const {
    unsigned blocks = 1;
    while (blocks * 2 <= static_cast<unsigned>(multiprocessors_) * (2048 / bulk_lanes)) blocks *= 2;
    return blocks;
  }

  void measure_bulk(const char* name, unsigned blocks) {
    clear_target(plan_.bulk_bytes);
    if (pe_ == 0) {
      const message what{target_, source_, plan_.bulk_bytes, nullptr};
      for (int launch = -2; launch < plan_.bulk_launches; ++launch) {
        if (launch == 0) timer_.start(stream_);
        put_parts<<<blocks, bulk_lanes, 0, stream_>>>(library_, what, 1);
      }
      check_launch();
      timer_.stop(stream_);
      const double bytes = static_cast<double>(plan_.bulk_bytes) * plan_.bulk_launches;
      const double spent_ns = timer_.elapsed_ns();
      finish();
      host_.barrier();
      print(name, bytes * 1e9 / spent_ns);
    } else {
      host_.barrier();
      check_target(plan_.bulk_bytes, 0);
    }
    together_.wait();
  }

  // By PE 0 while PE 1 does nothing. Its target is overwritten: nothing is checked after it.
  void measure_copy() {
    if (pe_ == 0) {
      for (int copy = -2; copy < plan_.bulk_launches; ++copy) {
        if (copy == 0) timer_.start(stream_);
        must(cudaMemcpyAsync(target_, source_, plan_.bulk_bytes, cudaMemcpyDeviceToDevice, stream_),
             "copy");
      }
      timer_.stop(stream_);
      const double bytes = static_cast<double>(plan_.bulk_bytes) * plan_.bulk_launches;
      print("copy_256MiB", bytes * 1e9 / timer_.elapsed_ns());
    }
    together_.wait();
  }

  // --- What arrived ------------------------------------------------------------------------------

  void clear_target(std::size_t bytes) {
    must(cudaMemsetAsync(target_, 0xee, bytes, stream_), "clear");
    finish();
    together_.wait();
  }

  void check_target(std::size_t bytes, int sender) {
    must(cudaMemsetAsync(wrong_, 0, sizeof *wrong_, stream_), "clear");
    count_wrong_bytes<<<256, 256, 0, stream_>>>(target_, bytes, sender, wrong_);
    finish();
    unsigned long long wrong = 0;
    to_host(&wrong, wrong_, 1);
    if (wrong != 0) give_up("what was put is not what arrived");
  }

  static constexpr unsigned bulk_lanes = 1024;

  const int pe_;
  const shmem_plan plan_;
  meeting& together_;
  const int multiprocessors_;
  Host host_;
  const typename Host::library_type library_;
  std::uint64_t* const words_;
  std::uint64_t* const spent_ns_;
  unsigned long long* const wrong_;
  cudaStream_t stream_{};
  event_timer timer_;
  std::byte* source_ = nullptr;
  std::byte* target_ = nullptr;
  std::uint64_t base_ = 0;
  bool prints_ = false;
};

inline bool parse(int argc, char** argv, shmem_plan& plan) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--quick") {
      plan.samples = 5;
      plan.round_trips = plan.barriers = 2000;
      plan.bulk_launches = 6;
    } else if (const int count = std::atoi(argv[i]); count >= 2 && count <= most_pes) {
      plan.pe_count = count;
    } else {
      return false;
    }
  }
  return true;
}

template <class Host>
int run_shmem(int argc, char** argv) {
  shmem_plan plan;
  if (!parse(argc, argv, plan)) {
    std::fprintf(stderr, "usage: %s [PES] [--quick]\n", argv[0]);
    return 2;
  }
  auto& board = shared_object<shmem_board>();
  board.together.prepare(plan.pe_count);
  const bool well = process_group::run(
      plan.pe_count, 90, [&](int pe) { shmem_measurements<Host>(pe, board, plan).measure_all(); });
  return well ? 0 : 1;
}

}  // namespace mori_bench
