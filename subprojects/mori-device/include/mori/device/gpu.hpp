// gpu.hpp - one GPU as host code sees it: memory, descriptors, streams, events,
// copies, code. Two implementations over drivers that are opened at run time
// (src/nvidia_gpu.cpp, src/amd_gpu.cpp); nothing here links or includes a vendor's
// library. Owners of what it hands out are in gpu_memory.hpp; kernels are
// launched through runtime.hpp.
//
// Rules for both implementations
//  * A `gpu` is made for the device that is current in the calling thread and uses that
//    device's own (primary) context, as the vendors' runtimes and frameworks do, so
//    addresses and streams are shared with them.
//  * Every call makes the device current for its own duration, in relaxed capture
//    mode: it neither breaks nor joins a graph capture of another stream or thread, and
//    the caller's current device is as before.
//  * Addresses are u64, the same on the device and, for host memory, on the host.
//  * Streams and events are the vendor's handles as void*; null is the default stream.
//  * There is one object per device context and process, and it stays: so that PEs that are
//    threads share its helper streams. Devices have few queues, and a stream that shares
//    one with a kernel that waits for another PE would wait too.
//  * A failure names the driver's call and its error; out of memory is
//    MORI_E_NO_MEMORY, a missing ability MORI_E_UNAVAILABLE, all else MORI_E_OS.
#pragma once

#include <mori/base/result.hpp>
#include <mori/base/unique_fd.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

namespace mori::device {

struct gpu_facts {
  int32_t backend = 0;  // MORI_BACKEND_AMD or _NVIDIA
  int32_t ordinal = 0;  // as the driver numbers it in this process
  std::string name;
  std::string architecture;        // "sm_90", "gfx942": as device images are named
  std::array<uint8_t, 16> uuid{};  // the same in all processes that see the device
  uint64_t memory_bytes = 0;
  uint32_t multiprocessor_count = 0;  // that this process may use
  uint32_t wave_lane_count = 0;       // 32 or 64
  bool exports_descriptors = false;   // VMM memory can be passed to other processes
  bool exports_dmabuf = false;
};

using ipc_handle = std::array<uint8_t, 64>;

// Code for one architecture: a cubin or a code object.
struct device_image {
  const char* architecture;
  const void* begin;
  uint64_t bytes;
};

class gpu {
 public:
  // The device that is current in the calling thread, else the first. Fails with
  // MORI_E_UNAVAILABLE and what was tried.
  static base::result<std::shared_ptr<gpu>> current(int32_t backend);
  // The device of that number, in its own context, whatever is current. MORI_E_INVALID: there is
  // none.
  static base::result<std::shared_ptr<gpu>> at(int32_t backend, int32_t ordinal);
  // The number of the device with that UUID; makes no context. MORI_E_NOT_FOUND: this process sees
  // none.
  static base::result<int32_t> find(int32_t backend, const std::array<uint8_t, 16>& uuid);
  // Whether this process has the driver's library open already. Where it does not, no address is
  // one of a device; asking costs nothing.
  static bool is_loaded(int32_t backend);
  // Whether there is a driver and a device, and what was tried or found.
  static base::result<std::string> describe(int32_t backend);

  virtual ~gpu() = default;
  const gpu_facts& facts() const { return facts_; }

  // Streams for the library's own short work beside the callers' streams; nothing on them ever
  // waits for a peer. `alarm` carries words alone, so it is never behind a large copy.
  enum class helper { work, alarm };
  base::result<void*> helper_stream(helper which);
  // Return when the bytes are there.
  base::status copy_now(uint64_t to, uint64_t from, uint64_t bytes, helper by = helper::work);
  base::status fill_now(uint64_t to, uint8_t value, uint64_t bytes);

  // --- Memory of the device, uninitialised. free() accepts 0.
  virtual base::result<uint64_t> allocate(uint64_t bytes) = 0;
  virtual void free(uint64_t address) = 0;

  // --- Host memory that kernels load and store (pinned, coherent, zeroed).
  virtual base::result<void*> allocate_host(uint64_t bytes) = 0;
  virtual void free_host(void* pointer) = 0;
  // Makes ordinary host memory such; gives the address that kernels use.
  virtual base::result<uint64_t> register_host(void* pointer, uint64_t bytes) = 0;
  virtual void unregister_host(void* pointer) = 0;

  // --- Virtual memory: physical memory, address ranges and mappings apart from each other.
  // Sizes and addresses are multiples of the granule.
  virtual base::result<uint64_t> granule_bytes() = 0;
  virtual base::result<uint64_t> create_memory(uint64_t bytes) = 0;  // a handle
  virtual void release_memory(uint64_t memory) = 0;                  // mappings keep it alive
  virtual base::result<base::unique_fd> export_memory(uint64_t memory) = 0;
  virtual base::result<uint64_t> import_memory(int descriptor) = 0;
  virtual base::result<uint64_t> reserve_addresses(uint64_t bytes, uint64_t alignment) = 0;
  virtual void release_addresses(uint64_t address, uint64_t bytes) = 0;
  // Readable and writable by this device.
  virtual base::status map(uint64_t address, uint64_t bytes, uint64_t memory) = 0;
  virtual void unmap(uint64_t address, uint64_t bytes) = 0;

  // --- Sharing by handle, where descriptors cannot be exported: the importer's mapping dies with
  // the exporter.
  virtual base::result<ipc_handle> export_ipc(uint64_t address) = 0;
  virtual base::result<uint64_t> import_ipc(const ipc_handle& handle) = 0;
  virtual void close_ipc(uint64_t address) = 0;
  virtual base::result<base::unique_fd> export_dmabuf(uint64_t address, uint64_t bytes) = 0;
  // Loads and stores of this device on memory of device `ordinal` of this process.
  virtual base::status enable_peer(int32_t ordinal) = 0;

  // Whether kernels of this device can load and store there, and where that memory is.
  struct pointer_facts {
    bool is_device = false;
    bool is_host = false;  // pinned or registered
    int32_t ordinal = -1;
  };
  virtual base::result<pointer_facts> look_up(uint64_t address) = 0;
  // The same of any address of this process, without a device: makes no context.
  static base::result<pointer_facts> locate(int32_t backend, uint64_t address);
  // The allocation that an address of a device lies in; of virtual memory the one mapping.
  struct range {
    uint64_t address = 0;
    uint64_t bytes = 0;
  };
  virtual base::result<range> allocation_at(uint64_t address) = 0;
  // The physical memory that is mapped at an address: a handle of its own, to be released.
  // Fails where the address is none of virtual memory.
  virtual base::result<uint64_t> memory_at(uint64_t address) = 0;

  // --- Streams and events.
  virtual base::result<void*> create_stream() = 0;  // non-blocking, highest priority
  virtual void destroy_stream(void* stream) = 0;
  virtual base::status synchronize_stream(void* stream) = 0;
  virtual base::result<bool> is_capturing(void* stream) = 0;
  virtual base::result<void*> create_event() = 0;  // without timing
  virtual void destroy_event(void* event) = 0;
  virtual base::status record_event(void* event, void* stream) = 0;
  virtual base::status wait_event(void* stream, void* event) = 0;
  virtual base::status synchronize_event(void* event) = 0;
  virtual base::result<bool> is_reached(void* event) = 0;

  // --- Copies between any addresses that the device knows; enqueued.
  virtual base::status copy(uint64_t to, uint64_t from, uint64_t bytes, void* stream) = 0;
  virtual base::status fill(uint64_t to, uint8_t value, uint64_t bytes, void* stream) = 0;

  // --- Code. Kernels are loaded when they are looked up, not at their first launch.
  virtual base::result<void*> load_module(const device_image& image) = 0;
  virtual void unload_module(void* module) = 0;
  virtual base::result<void*> find_kernel(void* module, const char* name) = 0;
  struct variable {
    uint64_t address = 0;  // 0: the module has none of that name
    uint64_t bytes = 0;
  };
  // Of any module that is loaded on this device, whoever loaded it.
  virtual base::result<variable> find_variable(void* module, const char* name) = 0;
  virtual base::result<uint32_t> largest_block(void* kernel) = 0;  // lanes
  // Blocks of that many lanes that one multiprocessor holds at once.
  virtual base::result<uint32_t> resident_blocks(void* kernel, uint32_t block_lanes) = 0;
  struct shape {
    uint32_t block_count;
    uint32_t block_lanes;
  };
  virtual base::status launch(void* kernel, shape grid, std::span<void*> arguments,
                              void* stream) = 0;

 protected:
  gpu_facts facts_;

 private:
  std::mutex helper_lock_;
  std::array<void*, 2> helpers_{};
};

// The one object for a device context; made by make() the first time.
base::result<std::shared_ptr<gpu>> gpu_of_context(
    const void* context, const std::function<base::result<std::shared_ptr<gpu>>()>& make);

}  // namespace mori::device
