// host_isa.cpp - which compiled variant of the host kernels runs here.
#include <mori/base/env.hpp>
#include <mori/device/runtime.hpp>

namespace mori::device {

namespace {

constexpr const char* names[host_isa_count] = {"x86-64", "x86-64-v3", "x86-64-v4"};

bool is_built(host_isa isa) { return (MORI_HOST_VARIANTS >> static_cast<int>(isa) & 1) != 0; }

bool runs_here(host_isa isa) {
  if (isa == host_isa::baseline) return true;
#if defined(__x86_64__)
  return isa == host_isa::x86_64_v3 ? __builtin_cpu_supports("x86-64-v3") != 0
                                    : __builtin_cpu_supports("x86-64-v4") != 0;
#else
  return false;
#endif
}

}  // namespace

const char* host_isa_name(host_isa isa) {
#if defined(__x86_64__)
  return names[static_cast<int>(isa)];
#else
  return isa == host_isa::baseline ? "baseline" : names[static_cast<int>(isa)];
#endif
}

base::result<host_isa> choose_host_isa() {
  if (const auto wanted = base::env_text("MORI_HOST_ISA")) {
    for (int i = 0; i < host_isa_count; ++i) {
      const auto isa = static_cast<host_isa>(i);
      if (*wanted != host_isa_name(isa)) continue;
      if (!is_built(isa))
        return base::fail(MORI_E_UNAVAILABLE, "MORI_HOST_ISA={}: not compiled into this build",
                          *wanted);
      if (!runs_here(isa))
        return base::fail(MORI_E_UNAVAILABLE, "MORI_HOST_ISA={}: this processor cannot run it",
                          *wanted);
      return isa;
    }
    return base::fail(MORI_E_INVALID, "MORI_HOST_ISA={}: use one of {}, {}, {}", *wanted, names[0],
                      names[1], names[2]);
  }
  for (int i = host_isa_count - 1; i > 0; --i)
    if (is_built(static_cast<host_isa>(i)) && runs_here(static_cast<host_isa>(i)))
      return static_cast<host_isa>(i);
  return host_isa::baseline;
}

}  // namespace mori::device
