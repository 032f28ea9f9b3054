// host_pool.hpp - the host back end: a pool of worker threads that runs the
// blocks of one kernel at a time. The calling thread is worker 0, so a pool of
// one makes no thread. Workers sleep between launches. Read host_pool.cpp next.
#pragma once

#include <mori/device/runtime.hpp>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace mori::device {

class host_pool final : public runtime {
 public:
  static base::result<std::unique_ptr<runtime>> create(const runtime_options& options);
  ~host_pool() override;

  int32_t backend() const override { return MORI_BACKEND_HOST; }
  uint32_t worker_count() const override { return worker_count_; }

 protected:
  base::result<uint32_t> launch_bytes(const kernel& what, const launch_options& options,
                                      const void* args, uint64_t args_bytes) override;

 private:
  struct job {
    void (*run)(const void*, const mori_device_launch*, unsigned) = nullptr;
    const void* args = nullptr;
    mori_device_launch launch{};
  };

  host_pool(uint32_t worker_count, host_isa isa);
  base::status start(const std::string& name);
  void work(uint32_t index);

  const uint32_t worker_count_;
  const host_isa isa_;
  const uint32_t fork_generation_;
  std::mutex launch_mutex_;  // one launch at a time
  alignas(64) mori_device_grid_barrier barrier_{};

  std::mutex mutex_;                           // guards what follows
  std::vector<std::condition_variable> wake_;  // one per worker: a small grid wakes few
  std::condition_variable done_;
  job job_;
  std::vector<uint64_t> ordered_;  // launches given to each worker
  uint32_t running_ = 0;           // workers (other than the caller) not yet done
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mori::device
