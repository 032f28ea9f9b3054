// health.hpp - the sticky fault of a context. The record and the abort word are
// plain memory that the host's kernels read and write (mori/shmem_device.h); host threads
// and the group's thread raise faults here. The first fault wins for ever.
// A GPU's kernels have a record and an abort word of their own (engine.hpp): check()
// looks at that record too, and raise() passes the abort on.
#pragma once

#include <mori/shmem_device.h>
#include <mori/base/result.hpp>

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace mori::shmem_core {

class health {
 public:
  // Both addresses go into the device state and stay valid with this object.
  mori_shmem_fault* record() { return &record_; }
  uint64_t* abort_word() { return &abort_word_; }

  // For a GPU: where its kernels record faults, and how to end their waits.
  void watch(const mori_shmem_fault* kernel_record, std::function<void()> end_waits);

  // True when this call's fault became the context's.
  bool raise(const base::failure& why, int32_t operation, int pe);

  // The fault as a failure, whoever raised it; success when there is none.
  // A fault that a kernel raised also sets the abort word here, so that the
  // context's other waits end.
  base::status check();

  // True once, for the caller that shall tell the other PEs.
  bool take_announcement();

 private:
  mori_shmem_fault record_{};
  uint64_t abort_word_ = 0;
  const mori_shmem_fault* kernel_record_ = nullptr;
  std::function<void()> end_waits_;
  bool announced_ = false;
  std::mutex lock_;   // text_, announced_
  std::string text_;  // of a fault raised by the host
  int os_errno_ = 0;
};

// "barrier: waited for PE 3, expected 7, last saw 6" from a kernel's record.
std::string describe(const mori_shmem_fault& record);

}  // namespace mori::shmem_core
