// fake_world.hpp - what stands behind the fake GPU drivers of these tests: devices whose
// memory is host memory. It counts calls, knows what lives, fails calls on demand, and notes
// calls that were made outside their rules. fake_amd.cpp and fake_nvidia.cpp give it a
// vendor's calls; tests reach it through fake_driver.hpp.
//
// A fake is a library of its own and holds one world. Virtual memory is real: memory files
// mapped into reserved ranges, so two mappings of one memory do see each other's bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace mori::fake {

// Of the calling thread.
struct thread_state {
  int device = 0;           // -1: none
  int capture_mode = 0;     // 0: global, 1: of the thread, 2: relaxed
  int last_error = 0;       // HIP keeps it
  std::vector<int> pushed;  // devices beneath the current one, where contexts are pushed
};

// What may be made of a call.
enum class rule {
  anywhere,    // on any device, in any capture mode
  step,        // fails when its number comes
  gives_back,  // never fails by number: that would be the leak that tests look for
};

struct launched {
  std::string kernel;
  unsigned block_count = 0;
  unsigned block_lanes = 0;
  void* stream = nullptr;
};

// What a launch does: on the launching thread, to its end.
using kernel_body = std::function<void(const launched& how, void** arguments)>;

// What the driver has, and how it fails; tests change it.
struct settings {
  int device_count = 2;
  bool has_virtual_memory = true;
  bool reaches_peers = true;
  bool heeds_alignment = true;  // of reserved addresses
  bool events_are_reached = true;
  bool is_capturing = false;
  bool has_uuid = true;
  std::string architecture = "gfx942:sramecc+:xnack-";
  uint64_t most_bytes = uint64_t{1} << 30;     // of an allocation
  int expected_device = 0;                     // on which calls should be made
  std::map<std::string, kernel_body> kernels;  // beside "double" and "nothing"
  // Of modules: module and name -> address and bytes.
  std::map<std::pair<uint64_t, std::string>, std::pair<void*, uint64_t>> variables;

  std::map<std::string, int> faults;  // the next call of that name fails so
  int fail_at = 0;                    // the step of that number, from 1, fails
  int fail_with = 0;
};

struct observations {
  std::map<std::string, int> counts;
  int steps = 0;
  std::string failed;                  // the call at fail_at
  std::vector<std::string> misplaced;  // calls made on another device than expected
  std::vector<std::string> unrelaxed;  // calls made in a capture mode that is not relaxed
  std::set<int> peers;
  launched last_launch;
};

struct world {
  settings set;
  observations seen;
  std::set<std::pair<std::string, uint64_t>> alive;  // kind, handle
  std::mutex lock;                                   // held during a call
  std::set<std::string> kernels;                     // interned names
  std::map<uint64_t, uint64_t> reserved_bytes;
  std::map<uint64_t, uint64_t> range_bytes;  // of allocations and mappings
  std::map<uint64_t, int> mapped_files;      // of mappings and shared allocations

  // Counts a call; returns the error that it shall fail with, 0 for none.
  int enter(const char* name, rule how, const thread_state& here);
  bool begin(const char* kind, uint64_t handle);  // false: it lives already
  bool end(const char* kind, uint64_t handle);    // false: there is none
  bool lives(const char* kind, uint64_t handle) const { return alive.contains({kind, handle}); }

  // 0: no memory. Filled with garbage.
  uint64_t allocate(const char* kind, uint64_t bytes);
  bool free(const char* kind, uint64_t address);
  // As allocate(), but other processes can open it by a handle of 64 bytes.
  uint64_t allocate_shared(const char* kind, uint64_t bytes);
  bool free_shared(const char* kind, uint64_t address);
  bool export_handle(uint64_t address, char* handle) const;  // of a start of a shared allocation
  uint64_t open_handle(const char* handle);                  // 0: nothing is there
  bool close_handle(uint64_t address);
  // What was allocated or mapped around an address: its start and size, {0, 0} where nothing was.
  std::pair<uint64_t, uint64_t> range_at(uint64_t address) const;

  uint64_t create_memory(uint64_t bytes);  // a handle
  bool release_memory(uint64_t memory);
  uint64_t memory_at(uint64_t address);    // another handle of what is mapped there, 0: nothing
  int export_memory(uint64_t memory);      // a descriptor, -1
  uint64_t import_memory(int descriptor);  // 0: it is none
  uint64_t reserve(uint64_t bytes, uint64_t alignment);
  bool release(uint64_t address, uint64_t bytes);
  bool map(uint64_t address, uint64_t bytes, uint64_t memory);  // no access yet
  bool allow(uint64_t address, uint64_t bytes);
  bool unmap(uint64_t address, uint64_t bytes);

  const void* find_kernel(const char* name);
  // "double" doubles arguments[1] words at arguments[0]. Returns what a kernel of the test's own
  // does: to be called when the lock is not held, so that it may wait for another launch.
  kernel_body launch(const void* kernel, const launched& how, void** arguments);
};

inline constexpr uint64_t granule = uint64_t{1} << 16;
inline constexpr uint8_t garbage = 0xa5;

}  // namespace mori::fake
