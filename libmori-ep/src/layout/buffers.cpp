// buffers.cpp - see buffers.hpp. No product here can overflow: check_config has
// bounded W (2^10), R and M (2^31), K (2^5), rows (2^20 bytes).
#include "layout/buffers.hpp"

namespace mori::ep_core {
namespace {

uint64_t round_up(uint64_t value, uint64_t granule) {
  return (value + granule - 1) / granule * granule;
}

class region_counter {
 public:
  uint64_t add(uint64_t size_bytes) {
    const uint64_t begin = end_;
    end_ += round_up(size_bytes, region_alignment);
    return begin;
  }
  uint64_t end() const { return end_; }

 private:
  uint64_t end_ = 0;
};

}  // namespace

symmetric_layout lay_out_symmetric(const settings& s) {
  const uint64_t W = s.rank_count, R = s.recv_token_capacity_count, K = s.expert_per_token_count;
  constexpr uint64_t line_words = line_bytes / sizeof(uint64_t);
  symmetric_layout at{};
  region_counter regions;
  at.count_row_words = round_up(1 + W, line_words);
  at.counts = regions.add(2 * W * at.count_row_words * sizeof(uint64_t));
  at.flags = regions.add(W * line_bytes);
  at.sync_bytes = regions.end();
  at.tokens = regions.add(R * s.row_bytes());
  at.token_bytes = regions.end() - at.tokens;
  at.indices = regions.add(R * K * sizeof(int32_t));
  at.weights = regions.add(R * K * sizeof(float));
  at.scales = regions.add(R * s.scale_row_bytes());
  at.source_tokens = regions.add(R * sizeof(int32_t));
  at.combine_weights = regions.add(R * K * sizeof(float));
  at.registered = regions.add(s.registered_input != 0 ? R * s.row_bytes() : 0);
  at.total_bytes = regions.end();
  return at;
}

private_layout lay_out_private(const settings& s) {
  const uint64_t W = s.rank_count, M = s.max_input_token_count, K = s.expert_per_token_count;
  private_layout at{};
  region_counter regions;
  at.plan = regions.add(plan_bytes);
  at.send_begin = regions.add(W * sizeof(uint32_t));
  at.source_begin = regions.add((W + 1) * sizeof(uint32_t));
  at.block_counts = regions.add(grid_limit * W * sizeof(uint32_t));
  at.block_reports = regions.add(grid_limit * block_report_bytes);
  at.routes = regions.add(M * s.fan_out() * route_bytes);
  at.local_expert_count = regions.add(s.expert_per_rank_count * sizeof(int32_t));
  at.out = regions.add(M * s.row_bytes());
  at.out_weights = regions.add(M * K * sizeof(float));
  at.total_bytes = regions.end();
  return at;
}

}  // namespace mori::ep_core
