// amd_absent.cpp - the place of the AMD driver.
#include "gpu_drivers.hpp"

namespace mori::device {

base::result<std::shared_ptr<gpu>> current_amd_gpu() {
  return base::fail(MORI_E_UNAVAILABLE, "no driver library (libamdhip64.so.7): not in this build");
}

base::result<std::string> describe_amd() {
  return base::fail(MORI_E_UNAVAILABLE, "no driver library (libamdhip64.so.7): not in this build");
}

}  // namespace mori::device
