// question.hpp - frames between a desk and its visitors; see mori/link/handover.hpp.
#pragma once

#include <mori/base/result.hpp>
#include <mori/link/bytes.hpp>

#include <algorithm>

namespace mori::link {

struct question_kind {
  static constexpr uint16_t asked = 64, granted = 65, refused = 66;
};

inline constexpr size_t max_refusal_text_bytes = 1024;

inline byte_vector encode_refusal(const base::failure& why) {
  byte_writer out;
  out.i32(why.status);
  out.text(std::string_view(why.text).substr(0, max_refusal_text_bytes));
  return out.take();
}

inline base::failure decode_refusal(byte_span bytes) {
  byte_reader in(bytes);
  const int32_t status = in.i32();
  const std::string text = in.text(max_refusal_text_bytes);
  if (!in.complete()) return base::fail(MORI_E_PROTOCOL, "a refusal that cannot be read");
  return {status > MORI_OK && status <= MORI_E_INTERNAL ? status : MORI_E_PROTOCOL, 0, text};
}

}  // namespace mori::link
