// amd_driver.cpp - see amd_driver.hpp.
#include "amd_driver.hpp"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>

namespace mori::device::amd {
namespace {

struct opened {
  void* handle = nullptr;
  std::string name;
};

// What a framework has loaded: two runtimes in one process do not share addresses or streams.
// Frameworks' wheels carry theirs under the name without a number.
opened find_loaded(std::span<const char* const> names) {
  const auto look = [](const char* name) {
    return dlopen(name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  };
  for (const char* name : names)
    if (void* const found = look(name); found != nullptr) return {found, name};
  const char* const unnumbered = "libamdhip64.so";
  const bool is_usual = names.data() == libraries;
  if (void* const found = is_usual ? look(unnumbered) : nullptr; found != nullptr)
    return {found, unnumbered};
  return {};
}

base::result<opened> open_first(std::span<const char* const> names) {
  if (opened loaded = find_loaded(names); loaded.handle != nullptr) return loaded;
  std::string tried;
  for (const char* name : names) {
    dlerror();
    // Never closed: drivers do not survive being unloaded.
    if (void* const made = dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE); made != nullptr)
      return opened{made, name};
    const char* const why = dlerror();
    tried += fmt::format("{}{}", tried.empty() ? "" : "; ", why != nullptr ? why : name);
  }
  return base::fail(MORI_E_UNAVAILABLE, "no driver library: {}", tried);
}

// Fills the table; returns the names of what is required and missing.
std::string look_up_calls(void* library, calls& table) {
  std::string missing;
  const auto note = [&](const char* name) {
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", name);
  };
#define MORI_AMD_CALL(name, required, ...)                                       \
  table.name = reinterpret_cast<status (*)(__VA_ARGS__)>(dlsym(library, #name)); \
  if (required && table.name == nullptr) note(#name);
  MORI_AMD_CALLS(MORI_AMD_CALL)
#undef MORI_AMD_CALL
#define MORI_AMD_WORDS(name)                                                     \
  table.name = reinterpret_cast<const char* (*)(status)>(dlsym(library, #name)); \
  if (table.name == nullptr) note(#name);
  MORI_AMD_WORDS(hipGetErrorName)
  MORI_AMD_WORDS(hipGetErrorString)
#undef MORI_AMD_WORDS
  return missing;
}

base::result<std::unique_ptr<calls>> open(std::span<const char* const> names) {
  MORI_TRY(const opened library, open_first(names));
  auto table = std::make_unique<calls>();
  const std::string missing = look_up_calls(library.handle, *table);
  if (!missing.empty())
    return base::fail(MORI_E_UNAVAILABLE, "{} is no driver that can be used: it lacks {}",
                      library.name, missing);
  table->library = library.name;
  if (const status outcome = table->hipRuntimeGetVersion(&table->version); outcome != success)
    return base::fail(MORI_E_UNAVAILABLE, "{}: hipRuntimeGetVersion failed with {} ({})",
                      library.name, table->hipGetErrorName(outcome), outcome);
  return table;
}

}  // namespace

bool calls::has_virtual_memory() const {
  return is_at_least(5, 3) && hipMemGetAllocationGranularity != nullptr &&
         hipMemCreate != nullptr && hipMemRelease != nullptr &&
         hipMemExportToShareableHandle != nullptr && hipMemImportFromShareableHandle != nullptr &&
         hipMemAddressReserve != nullptr && hipMemAddressFree != nullptr && hipMemMap != nullptr &&
         hipMemUnmap != nullptr && hipMemSetAccess != nullptr;
}

std::string calls::describe() const {
  return fmt::format("{}, HIP {}.{}.{}", library, version / 10'000'000, version / 100'000 % 100,
                     version % 100'000);
}

base::result<const calls*> driver(std::span<const char* const> names) {
  // Never destroyed: calls may come during static destruction. Failures are tried again, so that
  // a driver that is installed later is found.
  static std::mutex lock;
  static auto* const tables = new std::map<std::string, std::unique_ptr<calls>>();
  std::string key;
  for (const char* name : names) key.append(name).append("\n");
  const std::lock_guard guard(lock);
  std::unique_ptr<calls>& table = (*tables)[key];
  if (table == nullptr) {
    MORI_TRY(table, open(names));
  }
  return static_cast<const calls*>(table.get());
}

bool is_loaded(std::span<const char* const> names) { return find_loaded(names).handle != nullptr; }

}  // namespace mori::device::amd
