// layer.hpp - one dispatch and combine with known values: what a PE sends, what it must receive,
// and what must come back are functions of (PE, token), so each PE checks every byte by itself.
// Rows are whole numbers in float32, so sums are exact. Read layer.cpp next.
#pragma once

#include <mori/ep.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace multi {

struct layer_shape {
  int pe = 0;
  int pe_count = 0;
  uint64_t hidden = 0;
  uint64_t max_token_count = 0;
  uint64_t receive_cap = 0;  // 0: none
};

// Places where a gate can stop a PE within dispatch and combine.
enum class place {
  none,
  routing,        // dispatch, before the counts are sent
  first_row,      // dispatch, counts exchanged, no row sent
  middle_row,     // dispatch, half of the rows sent
  receiver,       // dispatch, in the middle of a store to another PE
  expert_rows,    // combine, while it publishes its rows
  routing_again,  // combine, rows published, not announced
  gather          // combine, while it reads another PE's rows
};

class layer {
 public:
  layer() = default;
  layer(const layer&) = delete;
  layer& operator=(const layer&) = delete;
  ~layer();

  mori_status create(mori_shmem* shmem, const layer_shape& shape, mori_error* error);
  void destroy();

  // token_counts: of each PE. target: the PE that all tokens go to; -1: spread.
  void set_tokens(const std::vector<uint64_t>& token_counts, int target);
  void stop_at(place where) { stop_at_ = where; }

  mori_status dispatch(mori_error* error);
  mori_status combine(mori_error* error);

  bool exists() const { return ep_ != nullptr; }
  uint64_t received_count() const { return received_.recv_token_count; }
  uint64_t wrong_count() const { return wrong_count_; }  // rows that were not as they must be

 private:
  bool map_arrays();
  void fill_own_tokens();
  int32_t expert_of(int pe, uint64_t token, int slot) const;
  bool goes_to(int pe, uint64_t token, int destination) const;
  const float* pattern_of(int pe, uint64_t token) const;
  mori_status check_received(mori_error* error);
  void check_combined(const float* out);
  void close_dispatch_gate();
  void close_combine_gate();
  void* peer_rows(int peer) const;

  mori_shmem* shmem_ = nullptr;
  mori_ep* ep_ = nullptr;
  layer_shape shape_;
  uint64_t capacity_ = 0;
  std::vector<uint64_t> token_counts_;
  int target_ = -1;
  place stop_at_ = place::none;
  std::byte* arrays_ = nullptr;  // routing, tokens, expert rows: each on pages of its own
  size_t array_bytes_ = 0;
  int32_t* indices_ = nullptr;
  float* input_ = nullptr;
  float* rows_ = nullptr;
  std::vector<float> pattern_;
  mori_ep_dispatch_result received_{};
  uint64_t wrong_count_ = 0;
};

}  // namespace multi
