// streams.cpp - see streams.hpp.
#include "operator/streams.hpp"

namespace mori::ep_core {

base::result<streams> streams::create(std::shared_ptr<device::gpu> gpu) {
  streams made;
  if (gpu == nullptr) return made;
  MORI_TRY(made.event_, gpu->create_event());
  made.gpu_ = std::move(gpu);
  return made;
}

streams::~streams() {
  if (event_ != nullptr) gpu_->destroy_event(event_);
}

base::result<bool> streams::is_capturing(void* stream) const {
  if (gpu_ == nullptr) return false;
  return gpu_->is_capturing(stream);
}

base::status streams::mark(void* stream) {
  is_marked_ = false;
  if (gpu_ == nullptr) return {};
  MORI_TRY(const bool capturing, gpu_->is_capturing(stream));
  if (capturing) return {};
  MORI_CHECK(gpu_->record_event(event_, stream));
  is_marked_ = true;
  return {};
}

base::status streams::wait_for_mark() const {
  return is_marked_ ? gpu_->synchronize_event(event_) : base::status();
}

base::status streams::wait_for(void* stream) const {
  return gpu_ != nullptr ? gpu_->synchronize_stream(stream) : base::status();
}

}  // namespace mori::ep_core
