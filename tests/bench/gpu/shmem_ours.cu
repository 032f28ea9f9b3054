// shmem_ours.cu - signals, puts and barriers between processes on one GPU by
// libmori-shmem: its device API, inlined. What is measured, and how, is in
// shmem_measure.hpp; shmem_nvshmem.cu measures the same by NVSHMEM.
//
//   usage: shmem_ours [PES] [--quick]
#include "shmem_measure.hpp"

#include <mori/device_api/shmem.hpp>
#include <mori/shmem.hpp>

namespace {

namespace api = mori::device_api;
namespace bench = mori_bench;
using mori::device::block;
using mori::device::one_lane;

struct device_calls {
  api::state state;

  __device__ int me() const { return api::my_pe(state); }
  __device__ void signal(std::uint64_t* word, std::uint64_t value, int pe) const {
    api::p(one_lane{}, state, word, value, pe);
  }
  __device__ void await(const std::uint64_t* word, std::uint64_t value, int pe) const {
    wait(one_lane{}, word, value, pe);
  }
  __device__ void put_signal(std::byte* to, const std::byte* from, std::size_t bytes,
                             std::uint64_t* word, std::uint64_t value, int pe) const {
    api::putmem_signal_nbi(block{}, state, api::put_request{to, from, bytes, pe},
                           {word, value, MORI_SHMEM_SIGNAL_SET});
  }
  __device__ void await_by_block(const std::uint64_t* word, std::uint64_t value, int pe) const {
    wait(block{}, word, value, pe);
  }
  __device__ void put(std::byte* to, const std::byte* from, std::size_t bytes, int pe) const {
    api::putmem_nbi(block{}, state, {to, from, bytes, pe});
  }
  __device__ void quiet() const { api::quiet(block{}, state); }
  __device__ void barrier() const { api::barrier_all(block{}, state); }

 private:
  template <class Group>
  __device__ void wait(const Group& group, const std::uint64_t* word, std::uint64_t value,
                       int pe) const {
    api::wait_until(group, state,
                    api::wait_request<std::uint64_t>{word, MORI_SHMEM_CMP_GE, value, pe});
  }
};

class pe_of_ours {
 public:
  static constexpr const char* name = "ours";
  using library_type = device_calls;

  pe_of_ours(int pe, int pe_count, bench::identity& id, bench::meeting& together)
      : context_(join(pe, pe_count, id, together)) {}

  library_type library() const { return {context_.device_state<api::state>().value()}; }
  void* allocate(std::size_t bytes) {
    void* memory = nullptr;
    mori::detail::call(mori_shmem_malloc_align, context_.handle(), std::uint64_t{4096},
                       std::uint64_t{bytes}, &memory)
        .value();
    return memory;
  }
  // A fault ends waits early: then nothing that was measured counts.
  void barrier() {
    context_.check().value();
    context_.barrier_all().value();
  }

 private:
  static mori::shmem::context join(int pe, int pe_count, bench::identity& id,
                                   bench::meeting& together) {
    static_assert(sizeof id.bytes == sizeof(mori_shmem_unique_id));
    mori_shmem_unique_id own{};
    if (pe == 0) {
      own = mori::shmem::make_unique_id().value();
      std::memcpy(id.bytes, &own, sizeof own);
    }
    together.wait();
    std::memcpy(&own, id.bytes, sizeof own);
    auto options = mori::shmem::options(pe, pe_count);
    options.backend = MORI_BACKEND_NVIDIA;
    options.heap_bytes = pe_count == 2 ? 640 * bench::mebibyte : 64 * bench::mebibyte;
    options.wait_timeout_ns = 20'000'000'000;
    return mori::shmem::context::create(own, options).value();
  }

  mori::shmem::context context_;
};

}  // namespace

int main(int argc, char** argv) { return bench::run_shmem<pe_of_ours>(argc, argv); }
