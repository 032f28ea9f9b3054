// device_api_pes.hpp - the PEs of plain_pes.hpp for unit tests of the device API.
#pragma once

#include "plain_pes.hpp"

#include <doctest/doctest.h>

namespace mori::shmem_test {

inline void check_fault(const fake_pe& pe, int32_t status, int32_t operation, int32_t whom) {
  CHECK(pe.fault.claimed == 2);
  CHECK(pe.fault.status == status);
  CHECK(pe.fault.operation == operation);
  CHECK(pe.fault.pe == whom);
}

}  // namespace mori::shmem_test
