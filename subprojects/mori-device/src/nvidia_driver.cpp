// nvidia_driver.cpp - see nvidia_driver.hpp.
#include "nvidia_driver.hpp"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace mori::device::nvidia {
namespace {

base::result<std::unique_ptr<calls>> open(const char* library) {
  dlerror();
  // Never closed: drivers do not survive being unloaded.
  void* const opened = dlopen(library, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (opened == nullptr) {
    const char* why = dlerror();
    return base::fail(MORI_E_UNAVAILABLE, "no driver library: {}", why != nullptr ? why : library);
  }
  auto table = std::make_unique<calls>();
  std::string missing;
#define MORI_NVIDIA_CALL(name, required, ...)                                    \
  table->name = reinterpret_cast<status (*)(__VA_ARGS__)>(dlsym(opened, #name)); \
  if (required && table->name == nullptr) missing += " " #name;
  MORI_NVIDIA_CALLS(MORI_NVIDIA_CALL)
#undef MORI_NVIDIA_CALL
  if (!missing.empty())
    return base::fail(MORI_E_UNAVAILABLE, "{} is too old: it lacks{}", library, missing);
  if (const status outcome = table->cuInit(0); outcome != success) {
    const char* name = nullptr;
    table->cuGetErrorName(outcome, &name);
    return base::fail(MORI_E_UNAVAILABLE, "{}: cuInit failed with {} ({})", library,
                      name != nullptr ? name : "an unknown error", outcome);
  }
  return table;
}

}  // namespace

base::result<const calls*> driver(const char* library) {
  // Never destroyed: calls may come during static destruction. Failures are tried again, so that
  // a driver that is installed later is found.
  static std::mutex lock;
  static auto* const tables = new std::map<std::string, std::unique_ptr<calls>>();
  const std::lock_guard guard(lock);
  std::unique_ptr<calls>& table = (*tables)[library];
  if (table == nullptr) {
    MORI_TRY(table, open(library));
  }
  return static_cast<const calls*>(table.get());
}

bool is_loaded(const char* library) {
  return dlopen(library, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) != nullptr;
}

}  // namespace mori::device::nvidia
