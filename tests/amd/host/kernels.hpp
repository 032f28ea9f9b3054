// kernels.hpp - the kernels that the tests execute, as records of the host back end. Their
// names are those of the entry points in the code objects. Defined in kernels.cpp.
#pragma once

#include <mori/device/launch.hpp>

#include <span>

namespace mori::amd_test {

std::span<const mori_device_host_kernel* const> host_kernels();

}  // namespace mori::amd_test
