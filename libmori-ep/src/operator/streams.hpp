// streams.hpp - what the operator does with the streams that its calls are enqueued on:
// asks whether one is being captured, remembers where the last dispatch ends, and
// waits. On the host there are none, and every question has a plain answer. Read
// operator.hpp next.
#pragma once

#include <mori/base/result.hpp>
#include <mori/device/gpu.hpp>

#include <memory>
#include <utility>

namespace mori::ep_core {

class streams {
 public:
  // gpu: null for the host.
  static base::result<streams> create(std::shared_ptr<device::gpu> gpu);
  streams() = default;
  streams(streams&& other) noexcept { swap(other); }
  streams& operator=(streams&& other) noexcept {
    streams(std::move(other)).swap(*this);
    return *this;
  }
  ~streams();
  void swap(streams& other) noexcept {
    gpu_.swap(other.gpu_);
    std::swap(event_, other.event_);
    std::swap(is_marked_, other.is_marked_);
  }

  bool exist() const { return gpu_ != nullptr; }
  base::result<bool> is_capturing(void* stream) const;
  // The end of what is enqueued now. A stream that is being captured leaves no mark: whoever
  // replays the graph knows when it has ended, we do not.
  base::status mark(void* stream);
  base::status wait_for_mark() const;
  base::status wait_for(void* stream) const;

 private:
  std::shared_ptr<device::gpu> gpu_;
  void* event_ = nullptr;
  bool is_marked_ = false;
};

}  // namespace mori::ep_core
