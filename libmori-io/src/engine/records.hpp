// records.hpp - sessions and transfers as the engine keeps them behind their handles
// (slots.hpp). A transfer refers to its session, a session to its engine.
#pragma once

#include <mori/io_types.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/slots.hpp"
#include "engine/statistics.hpp"
#include "memory/region.hpp"
#include "protocol/transfer.hpp"
#include "transport/backend.hpp"
#include "wire/descriptor.hpp"

struct mori_io_session;
struct mori_io_transfer;

namespace mori::io_core {

class engine;
class peer;
struct waiter;
struct session_record;
struct transfer_record;
using session_table = slot_table<session_record, mori_io_session>;
using transfer_table = slot_table<transfer_record, mori_io_transfer>;

inline constexpr size_t backend_count = 5;  // by MORI_IO_BACKEND_*
inline constexpr size_t rank_count = 3;     // of protocol::schedule

struct session_record {
  // Owners: the engine until it ends, and each call in progress.
  std::shared_ptr<engine> owner;
  std::shared_ptr<const memory::region> local;
  std::shared_ptr<const wire::memory_desc> remote;
  std::shared_ptr<peer> to;
  int32_t pinned = MORI_IO_BACKEND_AUTO;
  int32_t priority = MORI_IO_PRIORITY_NORMAL;

  // --- Under the engine's lock.
  int32_t backend = MORI_IO_BACKEND_AUTO;      // AUTO: none reaches any more
  std::shared_ptr<transport::path> path;       // of a direct backend
  std::shared_ptr<transport::backend> direct;  // whose path it is
  std::string reason;
  bool is_revoked = false;  // the peer deregistered the remote region
  std::array<protocol::flow, rank_count> small_flows;
  std::array<protocol::flow, rank_count> bulk_flows;
  statistics counted;

  void recycle() { *this = session_record(); }
};

// Where a transfer is on its way through the engine.
enum class stage : uint8_t {
  idle,
  linked,   // with its peer's link
  holding,  // waits for the link, which a direct backend needs too
  moving,   // a job of a direct backend
};

struct transfer_record final : protocol::transfer {
  std::shared_ptr<engine> owner;  // owners: this until it is recycled, sessions, calls
  session_table::ref session;     // until the engine is done with it
  stage where = stage::idle;
  transport::job job;
  // While it is moving; the session may have changed its way meanwhile.
  std::shared_ptr<transport::path> path;
  std::shared_ptr<transport::backend> mover;
  transfer_record* next_submitted = nullptr;
  transfer_table::ref self;        // the engine's, until it is done with it
  std::atomic<uint64_t> stamp{0};  // another one for each transfer
  uint64_t timeout_ns = 0;
  uint64_t tag = 0;
  bool enqueues = false;
  bool told = false;      // its outcome was given
  bool moves_on = false;  // once its link has let it go, another backend has it
  std::vector<memory::piece> piece_store;
  std::array<memory::piece, 4> few_pieces;
  std::vector<std::byte> metadata_store;

  // --- What may be asked at any time.
  std::atomic<bool> is_done{false};
  std::atomic<mori_status> status{MORI_OK};
  std::atomic<int32_t> backend{0};
  std::atomic<uint32_t> retries{0};
  std::atomic<uint64_t> asked_uid{0};
  std::atomic<uint64_t> asked_bytes{0};
  std::atomic<uint64_t> begin_ns{0};
  std::atomic<uint64_t> end_ns{0};
  std::atomic<waiter*> watcher{nullptr};
  std::mutex text_lock;
  std::string text;

  void recycle();
};

session_table& sessions();
transfer_table& transfers();

// Vectors of pieces are kept for the next large transfer.
std::vector<memory::piece> take_piece_store(uint64_t count);
void give_piece_store(std::vector<memory::piece>&& store);

}  // namespace mori::io_core
