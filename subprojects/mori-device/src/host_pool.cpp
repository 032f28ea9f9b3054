// host_pool.cpp - launch, worker loop, start and stop of the host back end.
#include "host_pool.hpp"

#include <mori/base/process.hpp>
#include <mori/base/quiet_signals.hpp>

#include <pthread.h>

#include <algorithm>
#include <system_error>

namespace mori::device {

namespace {

constexpr uint32_t most_workers = 1024;
constexpr uint64_t default_budget_ns = 300'000'000'000;

}  // namespace

host_pool::host_pool(uint32_t worker_count, host_isa isa)
    : worker_count_(worker_count),
      isa_(isa),
      fork_generation_(base::fork_generation()),
      wake_(worker_count),
      ordered_(worker_count, 0) {}

base::result<std::unique_ptr<runtime>> host_pool::create(const runtime_options& options) {
  if (options.worker_count < 1 || options.worker_count > most_workers)
    return base::fail(MORI_E_INVALID, "worker_count {} is outside 1 .. {}", options.worker_count,
                      most_workers);
  MORI_TRY(const host_isa isa, choose_host_isa());
  std::unique_ptr<host_pool> pool(new host_pool(options.worker_count, isa));
  MORI_CHECK(pool->start(options.name));
  return std::unique_ptr<runtime>(std::move(pool));
}

base::status host_pool::start(const std::string& name) {
  const base::quiet_signals for_the_workers;
  base::status outcome;
  threads_.reserve(worker_count_ - 1);
  try {
    for (uint32_t i = 1; i < worker_count_; ++i) {
      threads_.emplace_back([this, i] { work(i); });
      // The kernel keeps 15 characters.
      const std::string thread_name = fmt::format("{:.10}-w{}", name, i);
      pthread_setname_np(threads_.back().native_handle(), thread_name.substr(0, 15).c_str());
    }
  } catch (const std::system_error& e) {
    outcome = base::fail_os(e.code().value(), "worker thread {} of {} could not be started",
                            threads_.size() + 1, worker_count_);
  }
  return outcome;
}

host_pool::~host_pool() {
  if (base::fork_generation() != fork_generation_) {
    // After fork the threads exist in the parent only.
    for (std::thread& thread : threads_) thread.detach();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (std::condition_variable& wake : wake_) wake.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

base::result<uint32_t> host_pool::launch_bytes(const kernel& what, const launch_options& options,
                                               const void* args, uint64_t args_bytes) {
  if (base::fork_generation() != fork_generation_)
    return base::fail(MORI_E_STATE, "kernel {}: the worker pool was made before fork", what.name);
  if (options.block_count < 1)
    return base::fail(MORI_E_INVALID, "kernel {}: block_count 0 is below 1", what.name);
  const mori_device_host_kernel* variant = what.host[static_cast<int>(isa_)];
  if (variant == nullptr) variant = what.host[0];
  if (variant == nullptr)
    return base::fail(MORI_E_UNSUPPORTED, "kernel {}: not compiled for the host", what.name);
  if (args_bytes != variant->args_bytes)
    return base::fail(MORI_E_INTERNAL, "kernel {}: arguments of {} bytes, it takes {}", what.name,
                      args_bytes, variant->args_bytes);

  const uint32_t blocks = std::min(options.block_count, worker_count_);
  const std::lock_guard one_launch(launch_mutex_);
  barrier_ = {};
  job next;
  next.run = variant->run;
  next.args = args;
  next.launch = {
      .struct_size = sizeof(mori_device_launch),
      .block_count = blocks,
      .pe = options.pe,
      .barrier = reinterpret_cast<uintptr_t>(&barrier_),
      .abort_word = options.abort_word,
      .fault = options.fault,
      .wait_budget_ns = options.wait_budget_ns == 0 ? default_budget_ns : options.wait_budget_ns,
      .spin_count = options.spin_count,
  };
  if (blocks > 1) {
    const std::lock_guard lock(mutex_);
    job_ = next;
    running_ = blocks - 1;
    for (uint32_t i = 1; i < blocks; ++i) {
      ++ordered_[i];
      wake_[i].notify_one();
    }
  }
  next.run(args, &next.launch, 0);
  if (blocks > 1) {
    std::unique_lock lock(mutex_);
    // No deadline: the kernel's own waits are bounded by its budget.
    done_.wait(lock, [this] { return running_ == 0; });
  }
  return blocks;
}

void host_pool::work(uint32_t index) {
  uint64_t finished = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_[index].wait(lock, [&] { return stopping_ || ordered_[index] != finished; });
    if (ordered_[index] == finished) return;
    const job mine = job_;
    lock.unlock();
    mine.run(mine.args, &mine.launch, index);
    lock.lock();
    ++finished;
    if (--running_ == 0) done_.notify_one();
  }
}

}  // namespace mori::device
