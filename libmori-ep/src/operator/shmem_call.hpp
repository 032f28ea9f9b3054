// shmem_call.hpp - calls of libmori-shmem's C ABI from internal code: the C
// record becomes a failure. Read agreement.hpp next.
#pragma once

#include <mori/shmem.h>
#include <mori/base/result.hpp>

namespace mori::ep_core {

// shmem_call(mori_shmem_free, shmem, pointer)
template <class Function, class... Arguments>
base::status shmem_call(Function function, Arguments... arguments) {
  mori_error record = MORI_ERROR_INIT;
  const mori_status status = function(arguments..., &record);
  if (status == MORI_OK) return {};
  return base::failure{status, record.os_errno, record.message};
}

}  // namespace mori::ep_core
