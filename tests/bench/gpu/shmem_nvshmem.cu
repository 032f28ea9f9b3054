// shmem_nvshmem.cu - signals, puts and barriers between processes on one GPU by
// NVSHMEM, in its own device API: what shmem_ours.cu is compared with. What is
// measured, and how, is in shmem_measure.hpp.
//
//   usage: shmem_nvshmem [PES] [--quick]
#include "shmem_measure.hpp"

#include <nvshmem.h>
#include <nvshmemx.h>

namespace {

namespace bench = mori_bench;

struct device_calls {
  int pe;

  __device__ int me() const { return pe; }
  __device__ void signal(std::uint64_t* word, std::uint64_t value, int to) const {
    nvshmemx_signal_op(word, value, NVSHMEM_SIGNAL_SET, to);
  }
  __device__ void await(std::uint64_t* word, std::uint64_t value, int) const {
    nvshmem_signal_wait_until(word, NVSHMEM_CMP_GE, value);
  }
  __device__ void put_signal(std::byte* to, const std::byte* from, std::size_t bytes,
                             std::uint64_t* word, std::uint64_t value, int peer) const {
    nvshmemx_putmem_signal_nbi_block(to, from, bytes, word, value, NVSHMEM_SIGNAL_SET, peer);
  }
  // There is no wait by a block: one lane waits, all lanes meet.
  __device__ void await_by_block(std::uint64_t* word, std::uint64_t value, int from) const {
    if (threadIdx.x == 0) await(word, value, from);
    __syncthreads();
  }
  __device__ void put(std::byte* to, const std::byte* from, std::size_t bytes, int peer) const {
    nvshmemx_putmem_nbi_block(to, from, bytes, peer);
  }
  __device__ void quiet() const { nvshmem_quiet(); }
  __device__ void barrier() const { nvshmemx_barrier_all_block(); }
};

class pe_of_nvshmem {
 public:
  static constexpr const char* name = "nvshmem";
  using library_type = device_calls;

  pe_of_nvshmem(int pe, int pe_count, bench::identity& id, bench::meeting& together) : pe_(pe) {
    static_assert(sizeof id.bytes == sizeof(nvshmemx_uniqueid_t));
    nvshmemx_uniqueid_t own = NVSHMEMX_UNIQUEID_INITIALIZER;
    if (pe == 0) {
      if (nvshmemx_get_uniqueid(&own) != 0) bench::give_up("NVSHMEM gave no unique id");
      std::memcpy(id.bytes, &own, sizeof own);
    }
    together.wait();
    std::memcpy(&own, id.bytes, sizeof own);
    nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
    nvshmemx_set_attr_uniqueid_args(pe, pe_count, &own, &attributes);
    if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes) != 0)
      bench::give_up("NVSHMEM did not start");
    if (nvshmem_n_pes() != pe_count) bench::give_up("NVSHMEM counts other PEs");
  }
  ~pe_of_nvshmem() { nvshmem_finalize(); }

  library_type library() const { return {pe_}; }
  void* allocate(std::size_t bytes) {
    void* memory = nvshmem_align(4096, bytes);
    if (memory == nullptr) bench::give_up("the symmetric heap of NVSHMEM is too small");
    bench::must(cudaMemset(memory, 0, bytes), "symmetric memory");
    // As ours, which is zeroed before malloc returns.
    bench::must(cudaDeviceSynchronize(), "symmetric memory");
    nvshmem_barrier_all();
    return memory;
  }
  void barrier() { nvshmem_barrier_all(); }

 private:
  const int pe_;
};

}  // namespace

int main(int argc, char** argv) { return bench::run_shmem<pe_of_nvshmem>(argc, argv); }
