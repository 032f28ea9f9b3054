// dtype.cpp - see dtype.hpp.
#include "layout/dtype.hpp"

namespace mori::ep_core {

const dtype_facts* facts_of_dtype(int32_t dtype) {
  static constexpr dtype_facts f32{"f32", 4, true};
  static constexpr dtype_facts bf16{"bf16", 2, true};
  static constexpr dtype_facts f16{"f16", 2, true};
  static constexpr dtype_facts e4m3fn{"f8_e4m3fn", 1, true};
  static constexpr dtype_facts e4m3fnuz{"f8_e4m3fnuz", 1, true};
  static constexpr dtype_facts e5m2{"f8_e5m2", 1, false};
  static constexpr dtype_facts e2m1x2{"f4_e2m1x2", 1, false};
  switch (dtype) {
    case MORI_EP_F32: return &f32;
    case MORI_EP_BF16: return &bf16;
    case MORI_EP_F16: return &f16;
    case MORI_EP_F8_E4M3FN: return &e4m3fn;
    case MORI_EP_F8_E4M3FNUZ: return &e4m3fnuz;
    case MORI_EP_F8_E5M2: return &e5m2;
    case MORI_EP_F4_E2M1X2: return &e2m1x2;
    default: return nullptr;
  }
}

}  // namespace mori::ep_core
