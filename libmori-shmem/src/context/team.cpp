// team.cpp - see team.hpp.
#include "context/team.hpp"

#include <algorithm>

namespace mori::shmem_core {
namespace {

int rounds_of(int pe_count) {
  int rounds = 0;
  while ((1 << rounds) < pe_count) ++rounds;
  return rounds;
}

}  // namespace

uint64_t digest_of(std::span<const int32_t> numbers) {
  uint64_t digest = 0xCBF29CE484222325u;
  for (const int32_t number : numbers)
    for (int shift = 0; shift < 32; shift += 8) {
      digest ^= static_cast<uint32_t>(number) >> shift & 0xFFu;
      digest *= 0x100000001B3u;
    }
  return digest;
}

team::team(std::vector<int> members, int own_group_pe, void* words)
    : members_(std::move(members)),
      own_(number_of(own_group_pe)),
      words_(static_cast<uint64_t*>(words)) {}

base::result<std::shared_ptr<team>> team::create(context& owner, std::vector<int> members,
                                                 const recipe& made_by) {
  MORI_CHECK(owner.verify_same("a team", {made_by.kind, made_by.digest}));
  // One size for all, also where colors make teams of different sizes.
  const uint64_t bytes =
      static_cast<uint64_t>(std::max(1, rounds_of(owner.pe_count()))) * words_per_line * 8;
  MORI_TRY(void* words, owner.allocate({bytes, 64, 0}));
  const std::vector<uint64_t> zeros(bytes / 8, 0);
  // A block that was used before is not zero, and nobody may signal before it is.
  MORI_CHECK(owner.put(words, zeros.data(), bytes, owner.pe()));
  MORI_CHECK(owner.barrier_all());
  return std::shared_ptr<team>(new team(std::move(members), owner.pe(), words));
}

base::result<int> team::group_pe(int pe) const {
  if (pe < 0 || pe >= pe_count())
    return base::fail(MORI_E_INVALID, "pe {} is outside 0 .. {} of the team", pe, pe_count() - 1);
  return members_[static_cast<size_t>(pe)];
}

int team::number_of(int group_pe) const {
  const auto at = std::ranges::find(members_, group_pe);
  return at == members_.end() ? -1 : static_cast<int>(at - members_.begin());
}

base::status team::barrier(context& owner) {
  if (own_ < 0)
    return base::fail(MORI_E_STATE, "barrier of a team that PE {} is not in", owner.pe());
  const std::lock_guard guard(one_at_a_time_);
  MORI_CHECK(owner.quiet());
  ++epoch_;
  const int size = pe_count();
  for (int round = 0; round < rounds_of(size); ++round) {
    const int distance = 1 << round;
    mori_shmem_put_signal_args signal{};
    signal.signal = word(round);
    signal.signal_value = epoch_;
    signal.signal_op = MORI_SHMEM_SIGNAL_SET;
    signal.pe = members_[static_cast<size_t>((own_ + distance) % size)];
    MORI_CHECK(owner.put_signal(signal));
    mori_shmem_wait_args wait{};
    wait.address = word(round);
    wait.size_bytes = sizeof(uint64_t);
    wait.value = epoch_;
    wait.compare = MORI_SHMEM_CMP_GE;
    wait.pe = members_[static_cast<size_t>((own_ + size - distance) % size)];
    MORI_CHECK(owner.wait_until(wait));
  }
  return {};
}

void team::release(context& owner) { (void)!owner.free(words_); }

}  // namespace mori::shmem_core
