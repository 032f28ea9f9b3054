// records.cpp - see records.hpp.
#include "engine/records.hpp"

#include <bit>

#include "engine/engine.hpp"

namespace mori::io_core {
namespace {

constexpr unsigned session_kind = 5;  // 4: mori_io
constexpr unsigned transfer_kind = 6;
constexpr uint64_t most_kept_pieces = uint64_t{8} << 20;  // 192 MiB

// Stores by the power of two of what they hold.
struct piece_stores {
  std::mutex lock;
  std::array<std::vector<std::vector<memory::piece>>, 40> by_size;
  uint64_t kept_pieces = 0;
};
piece_stores& stores() {
  static auto* const all = new piece_stores;
  return *all;
}

}  // namespace

session_table& sessions() {
  static auto* const table = new session_table(session_kind, "mori_io_session");
  return *table;
}
transfer_table& transfers() {
  static auto* const table = new transfer_table(transfer_kind, "mori_io_transfer");
  return *table;
}

std::vector<memory::piece> take_piece_store(uint64_t count) {
  const auto size = static_cast<size_t>(std::bit_width(count - 1));
  {
    const std::lock_guard guard(stores().lock);
    auto& kept = stores().by_size[size];
    if (!kept.empty()) {
      std::vector<memory::piece> taken = std::move(kept.back());
      kept.pop_back();
      stores().kept_pieces -= taken.capacity();
      return taken;
    }
  }
  std::vector<memory::piece> made;
  made.reserve(uint64_t{1} << size);
  return made;
}

void give_piece_store(std::vector<memory::piece>&& store) {
  std::vector<memory::piece> taken = std::move(store);
  taken.clear();
  if (taken.capacity() == 0) return;
  const std::lock_guard guard(stores().lock);
  if (stores().kept_pieces + taken.capacity() > most_kept_pieces) return;
  stores().kept_pieces += taken.capacity();
  auto& kept = stores().by_size[static_cast<size_t>(std::bit_width(taken.capacity()) - 1)];
  kept.push_back(std::move(taken));
}

void transfer_record::recycle() {
  owner.reset();
  session.reset();
  if (piece_store.capacity() > 0) give_piece_store(std::move(piece_store));
  piece_store = {};
  metadata_store.clear();
  static_cast<protocol::transfer&>(*this) = {};
  where = stage::idle;
  job = {};
  path.reset();
  mover.reset();
  next_submitted = nullptr;
  tag = 0;
  timeout_ns = 0;
  enqueues = told = moves_on = false;
  is_done.store(false, std::memory_order_relaxed);
  watcher.store(nullptr, std::memory_order_relaxed);
  if (status.load(std::memory_order_relaxed) != MORI_OK) {
    const std::lock_guard guard(text_lock);
    text.clear();
  }
}

}  // namespace mori::io_core
