// shmem_heap.cpp - the exports of mori/shmem_heap.h. See shmem.cpp.
#include "capi/handles.hpp"

using namespace mori::shmem_capi;

extern "C" {

mori_status mori_shmem_heap_stats(const mori_shmem* in_shmem, mori_shmem_heap_report* out_report,
                                  mori_error* error) {
  return on(in_shmem, error, [&](context& c) -> base::status {
    return base::write_struct(out_report, "mori_shmem_heap_report", c.heap_stats());
  });
}

mori_status mori_shmem_malloc_with_flags(mori_shmem* in_shmem, uint64_t size_bytes, uint32_t flags,
                                         void** out_pointer, mori_error* error) {
  if (out_pointer != nullptr) *out_pointer = nullptr;
  return on(in_shmem, error, [&](context& c) -> base::status {
    MORI_CHECK(base::check_out(out_pointer, "out_pointer"));
    MORI_TRY(*out_pointer, c.allocate({size_bytes, mori::shmem_core::heap::granule_bytes, flags}));
    return {};
  });
}

}  // extern "C"
