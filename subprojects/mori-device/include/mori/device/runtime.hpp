// runtime.hpp - the host side: which back ends can run kernels here, and the one
// object that runs them. Plain C++20; not for kernels.
//
//   MORI_KERNEL_DECLARE(mori_x_fill);            // at global scope, once per file that uses it
//   MORI_TRY(auto pool, runtime::create({.backend = MORI_BACKEND_HOST, .worker_count = 2}));
//   MORI_TRY(uint32_t blocks,
//            pool->launch(MORI_KERNEL_HANDLE(mori_x_fill), {.block_count = 8}, args));
//
// Back ends answer with a reason instead of being compiled out: probe() says what
// was tried and found. The host back end runs kernels on a pool of worker threads, to their end.
// The GPU back ends enqueue them on a stream: options.images is the code that a library
// embeds (MORI_DEVICE_IMAGES below), options.kernels what is loaded at create.
#pragma once

#include <mori/base/result.hpp>
#include <mori/device/gpu.hpp>
#include <mori/device/launch.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

namespace mori::device {

// Answer of a back end: can it run kernels on this machine, and why (not).
struct viability {
  bool viable = false;
  std::string reason;
};

// backend: MORI_BACKEND_HOST, _AMD or _NVIDIA.
viability probe(int32_t backend);
const char* backend_name(int32_t backend);

// Instruction sets that host kernels are compiled for, weakest first.
enum class host_isa { baseline, x86_64_v3, x86_64_v4 };
inline constexpr int host_isa_count = 3;

const char* host_isa_name(host_isa isa);
// The best one that this processor and this build have, or the one that
// MORI_HOST_ISA names (x86-64, x86-64-v3, x86-64-v4); fails with MORI_E_INVALID for
// another word and MORI_E_UNAVAILABLE for one that cannot run here.
base::result<host_isa> choose_host_isa();

// A kernel as the host names it: its variants by instruction set, null where not built.
struct kernel {
  const char* name;
  const mori_device_host_kernel* host[host_isa_count];
};

struct runtime_options {
  int32_t backend = 0;        // MORI_BACKEND_*; auto is the host
  uint32_t worker_count = 1;  // host threads; 1: kernels run on the calling thread
  std::string name = "mori";  // prefix of the threads' names
  // GPUs only. The device (null: the current one), how many PEs share it, the code.
  std::shared_ptr<device::gpu> gpu{};
  uint32_t sharer_count = 1;
  std::span<const device_image> images{};
  std::span<const kernel> kernels{};
};

struct launch_options {
  uint32_t block_count = 1;  // a request: clamped to what runs at once
  uint32_t wave_count = 0;   // waves of a block, a request (GPUs); 0: 8
  void* stream = nullptr;    // GPUs
  int32_t pe = -1;           // named by a fault of the grid barrier
  uint64_t abort_word = 0;   // the next four as in mori_shmem_device_state_v1
  uint64_t fault = 0;
  uint64_t wait_budget_ns = 0;  // 0: 300 s
  uint64_t spin_count = 100;
};

// Runs kernels of one context. One launch at a time: concurrent calls wait for
// each other on the host, and must be on one stream, or ordered, on GPUs. Everything is made at
// create; launch() allocates nothing.
class runtime {
 public:
  static base::result<std::unique_ptr<runtime>> create(const runtime_options& options);

  virtual ~runtime() = default;
  virtual int32_t backend() const = 0;
  virtual uint32_t worker_count() const = 0;

  // Runs the kernel to its end (host) or enqueues it (GPUs); returns the number of blocks it has.
  template <class Args>
  base::result<uint32_t> launch(const kernel& what, const launch_options& options,
                                const Args& args) {
    static_assert(std::is_trivially_copyable_v<Args>);
    return launch_bytes(what, options, &args, sizeof(Args));
  }

 protected:
  virtual base::result<uint32_t> launch_bytes(const kernel& what, const launch_options& options,
                                              const void* args, uint64_t args_bytes) = 0;
};

}  // namespace mori::device

// Bit i: kernels are compiled for host_isa i. Set by the crate's dependency.
#if !defined(MORI_HOST_VARIANTS)
#define MORI_HOST_VARIANTS 1
#endif

#if MORI_HOST_VARIANTS & 2
#define MORI_KERNEL_DECLARE_V3(name) extern const mori_device_host_kernel name##_v3;
#define MORI_KERNEL_V3(name) &name##_v3
#else
#define MORI_KERNEL_DECLARE_V3(name)
#define MORI_KERNEL_V3(name) nullptr
#endif
#if MORI_HOST_VARIANTS & 4
#define MORI_KERNEL_DECLARE_V4(name) extern const mori_device_host_kernel name##_v4;
#define MORI_KERNEL_V4(name) &name##_v4
#else
#define MORI_KERNEL_DECLARE_V4(name)
#define MORI_KERNEL_V4(name) nullptr
#endif

// MORI_DEVICE_IMAGES_DECLARE(set); at global scope, then MORI_DEVICE_IMAGES(set) is the span of
// images that tools/embed_images.py made for the library: empty where no GPU compiler was found.
#define MORI_DEVICE_IMAGES_DECLARE(set)                     \
  extern "C" {                                              \
  extern const ::mori::device::device_image set##_images[]; \
  extern const uint64_t set##_image_count;                  \
  }                                                         \
  static_assert(true, "a semicolon may follow")
#define MORI_DEVICE_IMAGES(set) \
  std::span<const ::mori::device::device_image>(set##_images, set##_image_count)

// MORI_KERNEL_DECLARE(name); at global scope, then MORI_KERNEL_HANDLE(name) is a `kernel`.
#define MORI_KERNEL_DECLARE(name)                   \
  extern "C" {                                      \
  extern const mori_device_host_kernel name##_base; \
  MORI_KERNEL_DECLARE_V3(name)                      \
  MORI_KERNEL_DECLARE_V4(name)                      \
  }                                                 \
  static_assert(true, "a semicolon may follow")
#define MORI_KERNEL_HANDLE(name)                                        \
  ::mori::device::kernel {                                              \
    #name, { &name##_base, MORI_KERNEL_V3(name), MORI_KERNEL_V4(name) } \
  }
