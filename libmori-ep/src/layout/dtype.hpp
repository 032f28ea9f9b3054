// dtype.hpp - the element types of tokens: how wide they are and whether
// combine can add them. Dispatch moves bytes and takes all of them.
// Read settings.hpp next.
#pragma once

#include <mori/ep.h>

#include <cstdint>

namespace mori::ep_core {

struct dtype_facts {
  const char* name;
  uint64_t elem_bytes;
  bool combines;
};

// nullptr for a value that is none of MORI_EP_F32 ... MORI_EP_F4_E2M1X2.
const dtype_facts* facts_of_dtype(int32_t dtype);

}  // namespace mori::ep_core
