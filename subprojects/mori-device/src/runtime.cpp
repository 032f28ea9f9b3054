// runtime.cpp - back ends by number: what is viable here and why, and create.
// GPU drivers are looked for at run time, so that one library loads everywhere.
#include "gpu_runtime.hpp"
#include "host_pool.hpp"

namespace mori::device {

const char* backend_name(int32_t backend) {
  switch (backend) {
    case MORI_BACKEND_AUTO: return "auto";
    case MORI_BACKEND_HOST: return "host";
    case MORI_BACKEND_AMD: return "amd";
    case MORI_BACKEND_NVIDIA: return "nvidia";
    default: return "unknown";
  }
}

viability probe(int32_t backend) {
  switch (backend) {
    case MORI_BACKEND_HOST: {
      const auto isa = choose_host_isa();
      if (!isa) return {false, isa.error().text};
      return {true, fmt::format("kernels compiled for {}", host_isa_name(*isa))};
    }
    case MORI_BACKEND_AMD:
    case MORI_BACKEND_NVIDIA: {
      const auto found = gpu::describe(backend);
      return found ? viability{true, *found} : viability{false, found.error().text};
    }
    default:
      return {false, fmt::format("backend {} is none of host (1), amd (2), nvidia (3)", backend)};
  }
}

base::result<std::unique_ptr<runtime>> runtime::create(const runtime_options& options) {
  switch (options.backend) {
    case MORI_BACKEND_AUTO:
    case MORI_BACKEND_HOST: return host_pool::create(options);
    case MORI_BACKEND_AMD:
    case MORI_BACKEND_NVIDIA: return gpu_runtime::create(options);
    default: return base::fail(MORI_E_INVALID, "{}", probe(options.backend).reason);
  }
}

}  // namespace mori::device
