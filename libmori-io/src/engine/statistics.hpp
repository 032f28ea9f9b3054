// statistics.hpp - counters of a session or of a backend, and a histogram of
// latencies whose buckets are an eighth of a power of two wide, so that a
// percentile is within 7 % of the truth. Written under the engine's lock, read
// under it.
#pragma once

#include <mori/io_types.h>

#include <bit>
#include <cstdint>
#include <vector>

namespace mori::io_core {

class latency_histogram {
 public:
  void add(uint64_t ns) {
    if (counts_.empty()) counts_.assign(bucket_count, 0);
    ++counts_[bucket_of(ns)];
    ++total_;
    if (ns > max_ns_) max_ns_ = ns;
  }
  // The middle of the bucket in which that part of all lies; 0 when there is none.
  uint64_t percentile(double part) const {
    if (total_ == 0) return 0;
    const auto wanted = static_cast<uint64_t>(part * static_cast<double>(total_));
    uint64_t seen = 0;
    for (uint32_t i = 0; i < bucket_count; ++i) {
      seen += counts_[i];
      if (seen > wanted || seen == total_) return middle_of(i) < max_ns_ ? middle_of(i) : max_ns_;
    }
    return max_ns_;
  }
  uint64_t max_ns() const { return max_ns_; }
  uint64_t count() const { return total_; }

 private:
  static constexpr uint32_t bucket_count = 8 * 48;  // up to 2^50 ns, thirteen days
  static uint32_t bucket_of(uint64_t ns) {
    if (ns < 8) return static_cast<uint32_t>(ns);
    const auto power = static_cast<uint32_t>(std::bit_width(ns)) - 4;
    const auto bucket = 8 * (power + 1) + static_cast<uint32_t>(ns >> power & 7);
    return bucket < bucket_count ? bucket : bucket_count - 1;
  }
  static uint64_t middle_of(uint32_t bucket) {
    if (bucket < 8) return bucket;
    const uint32_t power = bucket / 8 - 1;
    return (uint64_t{8 + bucket % 8} << power) + (uint64_t{1} << power) / 2;
  }

  std::vector<uint32_t> counts_;
  uint64_t total_ = 0;
  uint64_t max_ns_ = 0;
};

struct statistics {
  uint64_t transfer_count = 0;
  uint64_t success_count = 0;
  uint64_t failure_count = 0;
  uint64_t cancel_count = 0;
  uint64_t retry_count = 0;
  uint64_t failover_count = 0;
  uint64_t read_bytes = 0;
  uint64_t written_bytes = 0;
  latency_histogram latency;

  void on_end(mori_status status, bool is_read, uint64_t bytes, uint64_t ns) {
    if (status == MORI_OK) {
      ++success_count;
      (is_read ? read_bytes : written_bytes) += bytes;
      latency.add(ns);
    } else if (status == MORI_E_CANCELLED) {
      ++cancel_count;
    } else {
      ++failure_count;
    }
  }

  void write_to(mori_io_stats& out) const {
    out.transfer_count = transfer_count;
    out.success_count = success_count;
    out.failure_count = failure_count;
    out.cancel_count = cancel_count;
    out.retry_count = retry_count;
    out.failover_count = failover_count;
    out.read_bytes = read_bytes;
    out.written_bytes = written_bytes;
    out.latency_p50_ns = latency.percentile(0.5);
    out.latency_p90_ns = latency.percentile(0.9);
    out.latency_p99_ns = latency.percentile(0.99);
    out.latency_max_ns = latency.max_ns();
  }
};

}  // namespace mori::io_core
