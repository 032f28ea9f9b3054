// traffic.hpp - what a PE does to the memory of all others, by host calls, and whether it was
// right. All PEs of a group run the same command with the same arguments.
#pragma once

#include <mori/shmem.h>

#include <cstdint>
#include <string>
#include <vector>

namespace multi {

class traffic {
 public:
  struct outcome {
    mori_status status = MORI_OK;
    std::string text;  // of success; error has that of a failure
  };

  traffic() = default;
  void reset() { *this = {}; }
  mori_status open(mori_shmem* shmem, int pe, int pe_count, mori_error* error);

  // Puts and gets of every awkward size, to every PE. Text: "wrong=N".
  outcome sizes(mori_error* error);
  // Random operations, each answer compared with a model. Text: "wrong=N operations=M".
  outcome random(uint64_t seed, uint64_t rounds, uint64_t operations, mori_error* error);
  // All PEs change words of one PE by atomics and signals. Text: "before=SUM wrong=N a b c d" with
  // the final words.
  outcome hammer(int target, uint64_t count, mori_error* error);
  // Many puts without a quiet in between. Text: "wrong=N".
  outcome burst(int target, uint64_t count, mori_error* error);

 private:
  struct model;
  mori_status random_operation(model& m, mori_error* error);
  mori_status verify(model& m, mori_error* error);
  uint8_t* column(int writer) const;
  uint64_t* counters() const;
  uint64_t* sums(int writer) const;

  mori_shmem* shmem_ = nullptr;
  int pe_ = 0;
  int pe_count_ = 0;
  uint8_t* area_ = nullptr;
};

}  // namespace multi
