// nvidia_gpu.hpp - a GPU behind libcuda: see mori/device/gpu.hpp for what each call
// promises. Memory calls are in nvidia_memory.cpp, the others in nvidia_gpu.cpp.
#pragma once

#include "nvidia_driver.hpp"

#include <mori/device/gpu.hpp>

namespace mori::device {

class nvidia_gpu final : public gpu {
 public:
  // The device of the calling thread's context, else device 0.
  static base::result<std::shared_ptr<gpu>> current(const char* library);
  static base::result<std::shared_ptr<gpu>> at(const char* library, int32_t ordinal);
  static base::result<int32_t> find(const char* library, const std::array<uint8_t, 16>& uuid);
  static base::result<pointer_facts> locate(const char* library, uint64_t address);
  static base::result<std::string> describe(const char* library);

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
  static base::result<std::shared_ptr<gpu>> of_context(const nvidia::calls& cuda, void* context);
  nvidia_gpu(const nvidia::calls& cuda, void* context) : cuda_(cuda), context_(context) {}
  base::status read_facts();
  base::result<int> attribute(int which) const;
  nvidia::allocation allocation_of() const;
  base::failure explain(const char* call, nvidia::status outcome) const;

  // For the duration of a call: the device's context is current, captures are left alone.
  class scope {
   public:
    explicit scope(const nvidia_gpu& on) : cuda_(on.cuda_) {
      cuda_.cuThreadExchangeStreamCaptureMode(&mode_);
      pushed_ = cuda_.cuCtxPushCurrent_v2(on.context_) == nvidia::success;
    }
    ~scope() {
      void* popped = nullptr;
      if (pushed_) cuda_.cuCtxPopCurrent_v2(&popped);
      cuda_.cuThreadExchangeStreamCaptureMode(&mode_);
    }
    scope(const scope&) = delete;
    scope& operator=(const scope&) = delete;

   private:
    const nvidia::calls& cuda_;
    int mode_ = nvidia::capture_relaxed;
    bool pushed_ = false;
  };

  const nvidia::calls& cuda_;
  void* const context_;  // of the caller, or the device's own, which stays retained
  bool rdma_of_vmm_ = false;
};

// Runs one driver call in a scope; returns from the enclosing function if it fails.
#define MORI_NVIDIA(call, ...)                                                              \
  do {                                                                                      \
    if (const nvidia::status outcome = cuda_.call(__VA_ARGS__); outcome != nvidia::success) \
      return explain(#call, outcome);                                                       \
  } while (0)

}  // namespace mori::device
