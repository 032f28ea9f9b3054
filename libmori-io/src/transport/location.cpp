// location.cpp - where memory lies: asks the GPU driver of this process, if there is
// one.
#include <mori/io_types.h>

#include "local/gpu_devices.hpp"
#include "transport/backend.hpp"

namespace mori::io_core::transport {

base::status locate_memory(memory::region& what, int32_t location, int32_t device) {
  what.location = MORI_IO_LOCATION_CPU;
  what.device = -1;
  if (location == MORI_IO_LOCATION_CPU) return {};
  const auto found = local::locate(what.begin);
  if (location == MORI_IO_LOCATION_DETECT && (!found || !found->is_device)) {
    if (device >= 0)
      return base::fail(MORI_E_INVALID, "device {} is given, but the memory is the host's", device);
    return {};
  }
  if (!found) return base::fail(MORI_E_UNAVAILABLE, "no GPU memory here: {}", found.error().text);
  if (!found->is_device)
    return base::fail(MORI_E_INVALID, "the memory at {} is the host's, not a GPU's",
                      static_cast<const void*>(what.begin));
  if (device >= 0 && device != found->ordinal)
    return base::fail(MORI_E_INVALID, "the memory is device {}'s, not device {}'s", found->ordinal,
                      device);
  what.location = MORI_IO_LOCATION_GPU;
  what.device = found->ordinal;
  return {};
}

}  // namespace mori::io_core::transport
