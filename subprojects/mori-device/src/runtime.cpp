// runtime.cpp - back ends by number: what is viable here and why, and create.
//
// The GPU back ends are looked for at run time, so that one library loads
// everywhere. A driver that is present is only named: running kernels on it is
// refused with MORI_E_UNSUPPORTED.
#include "host_pool.hpp"

#include <dlfcn.h>

#include <initializer_list>

namespace mori::device {

namespace {

// Tries the names in order; the reason lists each failure as the loader words it.
viability find_driver(std::initializer_list<const char*> names, std::string* found) {
  std::string tried;
  for (const char* name : names) {
    dlerror();
    // Never closed: drivers do not survive being unloaded.
    if (dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE) != nullptr) {
      *found = name;
      return {true, {}};
    }
    const char* why = dlerror();
    if (!tried.empty()) tried += "; ";
    tried += why != nullptr ? why : name;
  }
  return {false, "no driver library: " + tried};
}

viability probe_gpu(const char* vendor, std::initializer_list<const char*> names) {
  std::string found;
  viability answer = find_driver(names, &found);
  if (answer.viable) {
    answer.viable = false;
    answer.reason = fmt::format(
        "{} is present, but this version runs no {} kernels (they are compiled and checked only)",
        found, vendor);
  }
  return answer;
}

}  // namespace

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
      return probe_gpu("AMD", {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"});
    case MORI_BACKEND_NVIDIA: return probe_gpu("NVIDIA", {"libcuda.so.1"});
    default:
      return {false, fmt::format("backend {} is none of host (1), amd (2), nvidia (3)", backend)};
  }
}

base::result<std::unique_ptr<runtime>> runtime::create(const runtime_options& options) {
  switch (options.backend) {
    case MORI_BACKEND_AUTO:
    case MORI_BACKEND_HOST: return host_pool::create(options);
    case MORI_BACKEND_AMD:
    case MORI_BACKEND_NVIDIA: {
      const viability answer = probe(options.backend);
      const bool has_driver = answer.reason.find("is present") != std::string::npos;
      return base::fail(has_driver ? MORI_E_UNSUPPORTED : MORI_E_UNAVAILABLE, "backend {}: {}",
                        backend_name(options.backend), answer.reason);
    }
    default: return base::fail(MORI_E_INVALID, "{}", probe(options.backend).reason);
  }
}

}  // namespace mori::device
