// fake_world.cpp - see fake_world.hpp.
#include "fake_world.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace mori::fake {
namespace {

constexpr uint64_t least_alignment = 256;

}  // namespace

int world::enter(const char* name, rule how, const thread_state& here) {
  ++seen.counts[name];
  if (const auto fault = set.faults.find(name); fault != set.faults.end()) {
    const int error = fault->second;
    set.faults.erase(fault);
    return error;
  }
  if (how == rule::anywhere) return 0;
  if (here.capture_mode != 2) seen.unrelaxed.push_back(name);
  if (here.device != set.expected_device) seen.misplaced.push_back(name);
  if (how == rule::gives_back || ++seen.steps != set.fail_at) return 0;
  seen.failed = name;
  return set.fail_with;
}

bool world::begin(const char* kind, uint64_t handle) { return alive.insert({kind, handle}).second; }

bool world::end(const char* kind, uint64_t handle) { return alive.erase({kind, handle}) == 1; }

uint64_t world::allocate(const char* kind, uint64_t bytes) {
  if (bytes > set.most_bytes) return 0;
  // Aligned as the drivers' is at least.
  void* const made = std::aligned_alloc(
      least_alignment, bytes / least_alignment * least_alignment + least_alignment);
  std::memset(made, garbage, bytes);
  range_bytes[reinterpret_cast<uintptr_t>(made)] = bytes;
  begin(kind, reinterpret_cast<uintptr_t>(made));
  return reinterpret_cast<uintptr_t>(made);
}

bool world::free(const char* kind, uint64_t address) {
  if (!end(kind, address)) return false;
  range_bytes.erase(address);
  std::free(reinterpret_cast<void*>(address));
  return true;
}

std::pair<uint64_t, uint64_t> world::range_at(uint64_t address) const {
  auto next = range_bytes.upper_bound(address);
  if (next == range_bytes.begin()) return {};
  --next;
  if (address - next->first >= next->second) return {};
  return *next;
}

uint64_t world::memory_at(uint64_t address) {
  const auto found = mapped_files.find(range_at(address).first);
  return found != mapped_files.end() && lives("mapping", found->first)
             ? import_memory(found->second)
             : 0;
}

namespace {
struct shared_handle {
  int process;
  int file;
  uint64_t address, bytes;
};
void* map_file(int file, uint64_t bytes) {
  void* const made = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return made == MAP_FAILED ? nullptr : made;
}
}  // namespace

uint64_t world::allocate_shared(const char* kind, uint64_t bytes) {
  if (bytes == 0 || bytes > set.most_bytes) return 0;
  const int file = ::memfd_create("fake memory", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) return 0;
  void* const made = map_file(file, bytes);
  if (made == nullptr) return 0;
  std::memset(made, garbage, bytes);
  const auto address = reinterpret_cast<uintptr_t>(made);
  range_bytes[address] = bytes;
  mapped_files[address] = file;
  begin(kind, address);
  return address;
}

bool world::free_shared(const char* kind, uint64_t address) {
  if (!end(kind, address)) return false;
  ::munmap(reinterpret_cast<void*>(address), range_bytes[address]);
  ::close(mapped_files[address]);
  range_bytes.erase(address);
  mapped_files.erase(address);
  return true;
}

bool world::export_handle(uint64_t address, char* handle) const {
  const auto found = mapped_files.find(address);
  if (found == mapped_files.end() || lives("mapping", address)) return false;
  const shared_handle made{::getpid(), found->second, address, range_bytes.at(address)};
  std::memcpy(handle, &made, sizeof made);
  return true;
}

// Within one process the address serves, which the drivers refuse; tests of one process need it.
uint64_t world::open_handle(const char* handle) {
  shared_handle given{};
  std::memcpy(&given, handle, sizeof given);
  if (given.process == ::getpid()) {
    if (!range_bytes.contains(given.address)) return 0;
    return begin("opened handle", given.address) ? given.address : 0;
  }
  const std::string path =
      "/proc/" + std::to_string(given.process) + "/fd/" + std::to_string(given.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return 0;
  void* const made = map_file(file, given.bytes);
  ::close(file);
  if (made == nullptr) return 0;
  const auto address = reinterpret_cast<uintptr_t>(made);
  range_bytes[address] = given.bytes;
  begin("opened handle", address);
  return address;
}

bool world::close_handle(uint64_t address) {
  if (!end("opened handle", address)) return false;
  if (mapped_files.contains(address)) return true;
  ::munmap(reinterpret_cast<void*>(address), range_bytes[address]);
  range_bytes.erase(address);
  return true;
}

// A memory's handle is a descriptor plus one; the descriptor never leaves the world.
uint64_t world::create_memory(uint64_t bytes) {
  if (bytes == 0 || bytes % granule != 0 || bytes > set.most_bytes) return 0;
  const int file = ::memfd_create("fake memory", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) return 0;
  begin("memory", static_cast<uint64_t>(file) + 1);
  return static_cast<uint64_t>(file) + 1;
}

bool world::release_memory(uint64_t memory) {
  return end("memory", memory) && ::close(static_cast<int>(memory - 1)) == 0;
}

int world::export_memory(uint64_t memory) {
  return lives("memory", memory) ? ::dup(static_cast<int>(memory - 1)) : -1;
}

uint64_t world::import_memory(int descriptor) {
  const int file = ::dup(descriptor);
  if (file < 0) return 0;
  begin("memory", static_cast<uint64_t>(file) + 1);
  return static_cast<uint64_t>(file) + 1;
}

// mmap aligns to pages: a range that is larger by the alignment has an aligned address in it, and
// one that is not aligned to twice as much.
uint64_t world::reserve(uint64_t bytes, uint64_t alignment) {
  if (bytes == 0 || bytes % granule != 0) return 0;
  if (alignment < granule) alignment = granule;
  void* const made =
      ::mmap(nullptr, bytes + 2 * alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return 0;
  const auto first = reinterpret_cast<uintptr_t>(made);
  uint64_t chosen = (first + alignment - 1) / alignment * alignment;
  if (!set.heeds_alignment) chosen += 4096;
  if (chosen > first) ::munmap(made, chosen - first);
  const uint64_t tail = first + 2 * alignment - chosen;
  if (tail > 0) ::munmap(reinterpret_cast<void*>(chosen + bytes), tail);
  begin("addresses", chosen);
  reserved_bytes[chosen] = bytes;
  return chosen;
}

bool world::release(uint64_t address, uint64_t bytes) {
  return reserved_bytes[address] == bytes && end("addresses", address) &&
         ::munmap(reinterpret_cast<void*>(address), bytes) == 0;
}

bool world::map(uint64_t address, uint64_t bytes, uint64_t memory) {
  if (!lives("memory", memory) || address % granule != 0) return false;
  if (::mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
             static_cast<int>(memory - 1), 0) == MAP_FAILED ||
      !begin("mapping", address))
    return false;
  range_bytes[address] = bytes;
  mapped_files[address] = ::dup(static_cast<int>(memory - 1));  // a mapping keeps its memory
  return true;
}

bool world::allow(uint64_t address, uint64_t bytes) {
  return lives("mapping", address) &&
         ::mprotect(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE) == 0;
}

bool world::unmap(uint64_t address, uint64_t bytes) {
  if (!end("mapping", address)) return false;
  ::close(mapped_files[address]);
  mapped_files.erase(address);
  range_bytes.erase(address);
  return ::mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

const void* world::find_kernel(const char* name) {
  const bool is_known = std::strcmp(name, "double") == 0 || std::strcmp(name, "nothing") == 0;
  if (!is_known && !set.kernels.contains(name)) return nullptr;
  return &*kernels.insert(name).first;
}

kernel_body world::launch(const void* kernel, const launched& how, void** arguments) {
  launched& seen_launch = seen.last_launch;
  seen_launch = how;
  seen_launch.kernel = *static_cast<const std::string*>(kernel);
  if (const auto own = set.kernels.find(seen_launch.kernel); own != set.kernels.end())
    return own->second;
  if (seen_launch.kernel != "double") return {};
  auto* const words = *static_cast<uint64_t**>(arguments[0]);
  const uint64_t count = *static_cast<uint64_t*>(arguments[1]);
  for (uint64_t i = 0; i < count; ++i) words[i] *= 2;
  return {};
}

}  // namespace mori::fake
