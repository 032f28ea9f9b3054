// mishaps.hpp - the record in which kernels leave what went wrong in a call (a
// verdict, or a fault of this rank's own), and how the host raises it: at once where calls
// are synchronous, else at the next call. Raised once; the operator stays usable.
// Read verdict.hpp next.
#pragma once

#include "kernels/plan.hpp"
#include "layout/settings.hpp"

#include <mori/base/result.hpp>
#include <mori/device/gpu_memory.hpp>

#include <memory>

namespace mori::ep_core {

class mishaps {
 public:
  // gpu: null for the host.
  static base::result<mishaps> create(std::shared_ptr<device::gpu> gpu);

  // For kernels: of a mishap_record.
  uint64_t address() const { return device::address_of(record_); }

  // The mishap that is there, in words, and frees the record. Any thread.
  base::status raise(const settings& s) const;

 private:
  device::pinned_buffer pinned_;  // a GPU's kernels reach it
  std::unique_ptr<mishap_record> on_host_;
  mishap_record* record_ = nullptr;  // in one of the two
};

}  // namespace mori::ep_core
