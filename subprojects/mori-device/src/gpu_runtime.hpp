// gpu_runtime.hpp - the GPU back ends: kernels of one library, loaded at create and
// enqueued on the caller's streams. Read gpu_runtime.cpp next.
#pragma once

#include <mori/device/gpu_memory.hpp>
#include <mori/device/runtime.hpp>

#include <array>
#include <vector>

namespace mori::device {

class gpu_runtime final : public runtime {
 public:
  static base::result<std::unique_ptr<runtime>> create(const runtime_options& options);
  ~gpu_runtime() override;

  int32_t backend() const override { return gpu_->facts().backend; }
  uint32_t worker_count() const override { return gpu_->facts().multiprocessor_count; }

 protected:
  base::result<uint32_t> launch_bytes(const kernel& what, const launch_options& options,
                                      const void* args, uint64_t args_bytes) override;

 private:
  static constexpr uint32_t most_waves = 32;  // of a block

  struct loaded {
    const char* name = nullptr;
    void* handle = nullptr;
    uint32_t largest_wave_count = 0;
    // By waves of a block: how many such blocks of this PE are resident at once.
    std::array<uint32_t, most_waves + 1> resident_blocks{};
  };

  gpu_runtime(std::shared_ptr<gpu> on, uint32_t sharer_count)
      : gpu_(std::move(on)), sharer_count_(sharer_count) {}
  base::status load(const runtime_options& options);
  base::status launch_all_once();
  base::result<loaded> look_up(const char* name) const;
  base::result<const loaded*> find(const kernel& what) const;

  std::shared_ptr<gpu> gpu_;
  const uint32_t sharer_count_;
  void* module_ = nullptr;
  std::vector<loaded> kernels_;
  device_buffer barrier_;
};

}  // namespace mori::device
