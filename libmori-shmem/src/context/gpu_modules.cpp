// gpu_modules.cpp - see gpu_modules.hpp.
#include "context/gpu_modules.hpp"

#include <mori/base/log.hpp>

#include <array>
#include <cstring>

namespace mori::shmem_core {
namespace {

using state = mori_shmem_device_state_v2;

// By level, the newest first. A variable's name is part of the device protocol.
constexpr std::array names = {"mori_shmem_module_state_v2"};

// Who has set which variable, over all contexts of the process: the number of the PE.
struct owners {
  std::mutex lock;
  std::map<uint64_t, std::pair<const gpu_modules*, int>> by_address;
};

// Never destroyed: contexts may end during static destruction.
owners& all_owners() {
  static auto* const made = new owners;
  return *made;
}

base::status take(uint64_t address, const gpu_modules* who, int pe) {
  owners& all = all_owners();
  const std::lock_guard guard(all.lock);
  const auto [entry, is_new] = all.by_address.try_emplace(address, who, pe);
  if (!is_new && entry->second.first != who)
    return base::fail(MORI_E_STATE,
                      "the module is in use by PE {} of this process: PEs that are threads need a "
                      "module of their own each",
                      entry->second.second);
  return {};
}

void give_back(uint64_t address, const gpu_modules* who) {
  owners& all = all_owners();
  const std::lock_guard guard(all.lock);
  const auto entry = all.by_address.find(address);
  if (entry != all.by_address.end() && entry->second.first == who) all.by_address.erase(entry);
}

}  // namespace

base::status gpu_modules::write(uint64_t address, const state& what) {
  return gpu_->copy_now(address, reinterpret_cast<uint64_t>(&what), sizeof what);
}

base::status gpu_modules::init(void* module, const state& what) {
  if (module == nullptr) return base::fail(MORI_E_INVALID, "in_module is NULL");
  MORI_TRY(const device::gpu::variable found, gpu_->find_variable(module, names[0]));
  if (found.address == 0)
    return base::fail(
        MORI_E_NOT_FOUND,
        "the module has no variable {}: it was not linked with the device bitcode, or "
        "uses nothing of it",
        names[0]);
  if (found.bytes != sizeof what)
    return base::fail(MORI_E_VERSION, "{} of the module has {} bytes, this library's has {}",
                      names[0], found.bytes, sizeof what);
  const std::lock_guard guard(lock_);
  if (ended_) return base::fail(MORI_E_STATE, "the context has ended");
  MORI_CHECK(take(found.address, this, pe_));
  // A module that was loaded anew under the old handle has its variable elsewhere.
  if (const auto old = addresses_.find(module);
      old != addresses_.end() && old->second != found.address)
    give_back(old->second, this);
  addresses_[module] = found.address;
  state_ = what;
  return write(found.address, what);
}

base::status gpu_modules::forget(void* module) {
  const std::lock_guard guard(lock_);
  const auto found = addresses_.find(module);
  if (found == addresses_.end())
    return base::fail(MORI_E_NOT_FOUND, "the module was not initialised with this context");
  mark_dead(found->second);
  give_back(found->second, this);
  addresses_.erase(found);
  return {};
}

// A module that was unloaded without a word may have left its address to somebody else: only what
// is still our state is overwritten.
void gpu_modules::mark_dead(uint64_t address) {
  state seen{};
  auto outcome = gpu_->copy_now(reinterpret_cast<uint64_t>(&seen), address, sizeof seen);
  if (outcome && std::memcmp(&seen, &state_, sizeof seen) == 0) outcome = write(address, state{});
  if (!outcome)
    base::log(MORI_LOG_WARN, "PE {}: a module could not be marked dead: {}", pe_,
              outcome.error().text);
}

void gpu_modules::end() {
  const std::lock_guard guard(lock_);
  ended_ = true;
  for (const auto& [module, address] : addresses_) {
    mark_dead(address);
    give_back(address, this);
  }
  addresses_.clear();
}

}  // namespace mori::shmem_core
