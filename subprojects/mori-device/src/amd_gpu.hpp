// amd_gpu.hpp - a GPU behind libamdhip64: see mori/device/gpu.hpp for what each call
// promises. Memory calls are in amd_memory.cpp, the others in amd_gpu.cpp.
#pragma once

#include "amd_driver.hpp"

#include <mori/device/gpu.hpp>

#include <map>
#include <mutex>

namespace mori::device {

class amd_gpu final : public gpu {
 public:
  // The device that is current in the calling thread: the runtime has always one, at first 0.
  static base::result<std::shared_ptr<gpu>> current(
      std::span<const char* const> names = amd::libraries);
  static base::result<std::string> describe(std::span<const char* const> names = amd::libraries);
  static base::result<std::shared_ptr<gpu>> at(int32_t ordinal,
                                               std::span<const char* const> names = amd::libraries);
  static base::result<int32_t> find(const std::array<uint8_t, 16>& uuid,
                                    std::span<const char* const> names = amd::libraries);
  static base::result<pointer_facts> locate(uint64_t address,
                                            std::span<const char* const> names = amd::libraries);
  // As current(), but an object of its own: for tests that change what the device is.
  static base::result<std::shared_ptr<gpu>> open(std::span<const char* const> names);

  base::result<uint64_t> allocate(uint64_t bytes) override;
  void free(uint64_t address) override;
  base::result<void*> allocate_host(uint64_t bytes) override;
  void free_host(void* pointer) override;
  base::result<uint64_t> register_host(void* pointer, uint64_t bytes) override;
  void unregister_host(void* pointer) override;

  base::result<uint64_t> granule_bytes() override;
  base::result<uint64_t> create_memory(uint64_t bytes) override;
  void release_memory(uint64_t memory) override;
  base::result<base::unique_fd> export_memory(uint64_t memory) override;
  base::result<uint64_t> import_memory(int descriptor) override;
  base::result<uint64_t> reserve_addresses(uint64_t bytes, uint64_t alignment) override;
  void release_addresses(uint64_t address, uint64_t bytes) override;
  base::status map(uint64_t address, uint64_t bytes, uint64_t memory) override;
  void unmap(uint64_t address, uint64_t bytes) override;

  base::result<ipc_handle> export_ipc(uint64_t address) override;
  base::result<uint64_t> import_ipc(const ipc_handle& handle) override;
  void close_ipc(uint64_t address) override;
  base::result<base::unique_fd> export_dmabuf(uint64_t address, uint64_t bytes) override;
  base::status enable_peer(int32_t ordinal) override;
  base::result<pointer_facts> look_up(uint64_t address) override;
  base::result<range> allocation_at(uint64_t address) override;
  base::result<uint64_t> memory_at(uint64_t address) override;

  base::result<void*> create_stream() override;
  void destroy_stream(void* stream) override;
  base::status synchronize_stream(void* stream) override;
  base::result<bool> is_capturing(void* stream) override;
  base::result<void*> create_event() override;
  void destroy_event(void* event) override;
  base::status record_event(void* event, void* stream) override;
  base::status wait_event(void* stream, void* event) override;
  base::status synchronize_event(void* event) override;
  base::result<bool> is_reached(void* event) override;

  base::status copy(uint64_t to, uint64_t from, uint64_t bytes, void* stream) override;
  base::status fill(uint64_t to, uint8_t value, uint64_t bytes, void* stream) override;

  base::result<void*> load_module(const device_image& image) override;
  void unload_module(void* module) override;
  base::result<void*> find_kernel(void* module, const char* name) override;
  base::result<variable> find_variable(void* module, const char* name) override;
  base::result<uint32_t> largest_block(void* kernel) override;
  base::result<uint32_t> resident_blocks(void* kernel, uint32_t block_lanes) override;
  base::status launch(void* kernel, shape grid, std::span<void*> arguments, void* stream) override;

 private:
  // For the duration of a call: the device is current, captures are left alone, and an error of
  // ours does not stay behind as the thread's last one, for which frameworks look after a launch.
  class scope {
   public:
    explicit scope(const amd_gpu& on);
    ~scope();
    scope(const scope&) = delete;
    scope& operator=(const scope&) = delete;
    amd::status outcome() const { return outcome_; }

   private:
    void exchange_mode();

    const amd::calls& hip_;
    int mode_ = amd::capture_relaxed;
    int callers_ = 0;
    bool changed_ = false;
    amd::status outcome_ = amd::success;
  };

  explicit amd_gpu(const amd::calls& hip, int ordinal) : hip_(hip) { facts_.ordinal = ordinal; }
  static base::result<std::shared_ptr<gpu>> make(const amd::calls& hip, int ordinal);
  base::status read_facts();
  base::result<std::string> read_architecture() const;
  static std::array<uint8_t, 16> uuid_of(const amd::calls& hip, int ordinal);
  void read_virtual_memory();
  base::result<int> attribute(int which) const;
  amd::allocation allocation_of() const;
  base::status require_virtual_memory() const;
  base::result<uint64_t> reserve(uint64_t bytes, uint64_t alignment);

  base::failure explain(const char* call, amd::status outcome) const;
  // Takes an error that is no failure, or cannot be reported, off the thread's last one.
  void settle(amd::status outcome) const { settle_with(hip_, outcome); }
  static void settle_with(const amd::calls& hip, amd::status outcome) {
    if (outcome != amd::success) hip.hipGetLastError();
  }

  const amd::calls& hip_;
  uint64_t granule_bytes_ = 0;
  std::string no_virtual_memory_;  // why; empty: there is

  // Ranges that were reserved larger, to be aligned: by the address handed out.
  struct reservation {
    uint64_t base;
    uint64_t bytes;
  };
  std::mutex lock_;
  std::map<uint64_t, reservation> padded_;
};

// The rest of the enclosing function is one call: makes the device current for it.
#define MORI_AMD_SCOPE     \
  const scope here(*this); \
  if (here.outcome() != amd::success) return explain("hipSetDevice", here.outcome())

// Runs one driver call in a scope; returns from the enclosing function if it fails.
#define MORI_AMD(call, ...)                                                          \
  do {                                                                               \
    if (const amd::status outcome = hip_.call(__VA_ARGS__); outcome != amd::success) \
      return explain(#call, outcome);                                                \
  } while (0)

}  // namespace mori::device
