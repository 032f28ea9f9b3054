// collective.hpp - barrier and allgather in ceil(log2 n) rounds, as a state
// machine without sockets: parts of messages in, parts of messages out.
//
// Round k receives from rank r - 2^k all that rank knows after k rounds (the
// blocks of r - 2^k, r - 2^k - 1, ...), and appends it to what this rank knows.
// So after the last round buffer position j holds the block of rank r - j. A
// barrier is the same with blocks of zero bytes. Nobody can finish before
// everybody has begun: each rank's start reaches each other rank on exactly
// one path, and a rank that sees a mismatch on it passes nothing on.
//
// One operation at a time. Parts of the next one may come early: a neighbour
// that has finished this one may be a step ahead, never two.
#pragma once

#include <mori/base/result.hpp>
#include <mori/link/bytes.hpp>

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "protocol/topology.hpp"

namespace mori::link {

enum class collective_kind : uint8_t { barrier = 1, allgather = 2 };

inline constexpr uint32_t max_block_bytes = 1024 * 1024;
inline constexpr size_t max_part_bytes = 128 * 1024;
inline constexpr size_t part_header_bytes = 8 + 1 + 4 + 8 + 8;

class collective {
 public:
  explicit collective(const topology& shape);

  // Begins the next operation and returns its sequence number (first: 1). Only
  // while none runs. `mine` is copied.
  uint64_t start(collective_kind kind, byte_span mine);
  bool running() const { return running_; }
  uint64_t sequence() const { return sequence_; }  // of the last one begun

  // A part came in. Errors: the bytes make no sense (MORI_E_PROTOCOL).
  base::status on_part(int link, byte_span payload);

  struct part {
    byte_vector header;
    byte_span data;  // valid until commit
  };
  // What should be sent next over an outgoing link; commit() says it was taken.
  std::optional<part> peek(int link) const;
  void commit(int link);

  // Ends the operation with this sequence, now or as soon as it begins.
  void fail(uint64_t sequence, const base::failure& why);
  // All ranks have begun this operation, as another rank knows that has ended it: a barrier that
  // runs is over then.
  void all_began(uint64_t sequence);
  // Found here and not yet told to anybody: a mismatch.
  std::optional<base::failure> take_own_finding();

  // Once not running: how the last one ended, and its blocks.
  const base::status& outcome() const { return outcome_; }
  byte_span block(int rank) const;

  // Whom the running operation waits for; -1: nobody.
  int awaited_rank() const;
  std::string describe() const;  // "barrier (collective 12)"

 private:
  struct arrival {
    uint64_t sequence = 0;
    collective_kind kind = collective_kind::barrier;
    uint32_t block_bytes = 0;
    uint64_t total_bytes = 0;
    byte_vector data;
    bool complete = false;
  };
  struct departure {
    bool due = false;
    bool sent = false;
    uint64_t sent_bytes = 0;
  };

  uint64_t round_bytes(int round) const;
  base::status store(std::deque<arrival>& inbox, arrival&& head, uint64_t offset, byte_span data);
  bool agrees(const arrival& a, int from);
  void advance();
  void end(base::status how);

  topology shape_;
  bool running_ = false;
  uint64_t sequence_ = 0;
  collective_kind kind_ = collective_kind::barrier;
  uint32_t block_bytes_ = 0;
  int round_ = 0;
  byte_vector buffer_;
  base::status outcome_;
  std::vector<std::deque<arrival>> inbox_;  // by round
  std::vector<departure> outbox_;           // by round
  std::map<uint64_t, base::failure> failed_early_;
  std::optional<base::failure> own_finding_;
};

}  // namespace mori::link
