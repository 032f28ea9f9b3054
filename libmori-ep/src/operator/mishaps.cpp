// mishaps.cpp - see mishaps.hpp.
#include "operator/mishaps.hpp"

#include "operator/verdict.hpp"

#include <atomic>

namespace mori::ep_core {

base::result<mishaps> mishaps::create(std::shared_ptr<device::gpu> gpu) {
  mishaps made;
  if (gpu != nullptr) {
    MORI_TRY(made.pinned_, device::pinned_buffer::allocate(std::move(gpu), sizeof(mishap_record)));
    made.record_ = reinterpret_cast<mishap_record*>(made.pinned_.data());
  } else {
    made.on_host_ = std::make_unique<mishap_record>();
    made.record_ = made.on_host_.get();
  }
  return made;
}

base::status mishaps::raise(const settings& s) const {
  const std::atomic_ref claimed(record_->claimed);
  if (claimed.load(std::memory_order_acquire) != 2) return {};
  // Of several threads one raises it.
  uint64_t complete = 2;
  if (!claimed.compare_exchange_strong(complete, 1)) return {};
  const mishap_record seen = *record_;
  claimed.store(0, std::memory_order_release);
  return explain(s, seen);
}

}  // namespace mori::ep_core
