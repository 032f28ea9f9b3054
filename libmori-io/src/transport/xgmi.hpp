// xgmi.hpp - the same-node backend with code of a test's own in place of the library's
// kernels. The engine uses make_xgmi() of backend.hpp.
#pragma once

#include <mori/device/gpu.hpp>

#include "transport/backend.hpp"

namespace mori::io_core::transport {

inline constexpr int32_t most_xgmi_streams = 1024;  // and events

base::result<std::shared_ptr<backend>> make_xgmi(const xgmi_options& options,
                                                 std::span<const device::device_image> images);

}  // namespace mori::io_core::transport
