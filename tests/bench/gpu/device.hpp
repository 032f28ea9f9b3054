// device.hpp - what the GPU benchmarks need of the runtime: calls that must
// succeed, memory of the device, time by events and by the GPU's own clock. Only
// for programs under tests/bench/gpu, which speak the GPU's language because
// what they are compared with does. shmem_kernels.hpp uses it first.
#pragma once

#include "../processes.hpp"

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

namespace mori_bench {

// Ends this process, and so the benchmark, where a call failed.
inline void must(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    give_up((std::string(what) + ": " + cudaGetErrorString(status)).c_str());
}

// The one GPU of the benchmark, as its MPS share shows it. Makes the context; first call of all.
inline int use_gpu() {
  must(cudaSetDevice(0), "no GPU");
  must(cudaFree(nullptr), "no GPU context");
  int multiprocessors = 0;
  must(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0),
       "multiprocessor count");
  return multiprocessors;
}

// Device memory of this process. Never freed: processes are short.
template <class T>
T* device_memory(std::size_t count) {
  void* memory = nullptr;
  must(cudaMalloc(&memory, count * sizeof(T)), "device memory");
  must(cudaMemset(memory, 0, count * sizeof(T)), "device memory");
  return static_cast<T*>(memory);
}

template <class T>
void to_device(T* to, const T* from, std::size_t count) {
  must(cudaMemcpy(to, from, count * sizeof(T), cudaMemcpyDefault), "copy to the device");
}

template <class T>
void to_host(T* to, const T* from, std::size_t count) {
  must(cudaMemcpy(to, from, count * sizeof(T), cudaMemcpyDefault), "copy from the device");
}

inline void check_launch() { must(cudaGetLastError(), "kernel launch"); }

// Two events around what is enqueued between start() and stop().
class event_timer {
 public:
  event_timer() {
    must(cudaEventCreate(&start_), "event");
    must(cudaEventCreate(&stop_), "event");
  }
  void start(cudaStream_t stream) { must(cudaEventRecord(start_, stream), "event record"); }
  void stop(cudaStream_t stream) { must(cudaEventRecord(stop_, stream), "event record"); }
  // Waits for the second event.
  double elapsed_ns() {
    must(cudaEventSynchronize(stop_), "what was timed failed");
    float milliseconds = 0;
    must(cudaEventElapsedTime(&milliseconds, start_, stop_), "event times");
    return static_cast<double>(milliseconds) * 1e6;
  }

 private:
  cudaEvent_t start_{}, stop_{};
};

__device__ inline std::uint64_t gpu_clock_ns() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}

}  // namespace mori_bench
