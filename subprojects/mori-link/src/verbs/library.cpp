// library.cpp - see library.hpp.
#include "verbs/library.hpp"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace mori::link::verbs::abi {
namespace {

base::result<std::unique_ptr<calls>> open(const char* name) {
  dlerror();
  // Never closed: providers that it loads do not survive being unloaded.
  void* const opened = dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (opened == nullptr) {
    const char* const why = dlerror();
    return base::fail(MORI_E_UNAVAILABLE, "no verbs library: {}", why != nullptr ? why : name);
  }
  auto table = std::make_unique<calls>();
  std::string missing;
#define MORI_VERBS_CALL(name, version, required, result, ...)                              \
  table->name = reinterpret_cast<result (*)(__VA_ARGS__)>(dlvsym(opened, #name, version)); \
  if (required && table->name == nullptr) missing += " " #name;
  MORI_VERBS_CALLS(MORI_VERBS_CALL)
#undef MORI_VERBS_CALL
  if (!missing.empty())
    return base::fail(MORI_E_UNAVAILABLE, "{} is not rdma-core's, or too old: it lacks{}", name,
                      missing);
  return table;
}

}  // namespace

base::result<const calls*> open_library(const char* name) {
  // Never destroyed: calls may come during static destruction.
  static std::mutex lock;
  static auto* const tables = new std::map<std::string, std::unique_ptr<calls>>();
  const std::lock_guard guard(lock);
  std::unique_ptr<calls>& table = (*tables)[name];
  if (table == nullptr) {
    MORI_TRY(table, open(name));
  }
  return static_cast<const calls*>(table.get());
}

base::result<const calls*> library() { return open_library("libibverbs.so.1"); }

}  // namespace mori::link::verbs::abi
