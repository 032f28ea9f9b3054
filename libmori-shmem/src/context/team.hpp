// team.hpp - a numbered subset of a group's PEs: who is in it, and a barrier among them by
// dissemination over words in the symmetric heap. The barrier is made of the context's
// own put-with-signal and wait, so it works wherever these do.
#pragma once

#include "context/context.hpp"

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace mori::shmem_core {

class team {
 public:
  // Collective over the context. `mine` are the members of the team that this PE belongs to or
  // sees, by number in the group; `recipe` is what must be the same on all PEs.
  struct recipe {
    uint64_t kind = 0;
    uint64_t digest = 0;
  };
  static base::result<std::shared_ptr<team>> create(context& owner, std::vector<int> members,
                                                    const recipe& made_by);

  int pe() const { return own_; }
  int pe_count() const { return static_cast<int>(members_.size()); }
  base::result<int> group_pe(int pe) const;
  int number_of(int group_pe) const;  // -1: not in it

  base::status barrier(context& owner);
  // The words go back to the heap.
  void release(context& owner);

 private:
  team(std::vector<int> members, int own_group_pe, void* words);
  uint64_t* word(int round) const { return words_ + round * words_per_line; }

  static constexpr int words_per_line = 8;
  const std::vector<int> members_;
  const int own_;
  uint64_t* const words_;  // one line for each round, in the own heap
  std::mutex one_at_a_time_;
  uint64_t epoch_ = 0;
};

// FNV-1a over what a team was made of.
uint64_t digest_of(std::span<const int32_t> numbers);

}  // namespace mori::shmem_core
