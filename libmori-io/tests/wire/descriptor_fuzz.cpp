// Descriptors from anybody: refused, or within limits and the same when packed
// again. The first byte of the input says what the rest is:
//   0, 1  an engine's, a memory's descriptor as it is
//   2, 3  the body of one, around which the envelope is made right
#include <algorithm>

#include "wire/codec.hpp"
#include "wire_fuzz.hpp"

using namespace mori::io_core::wire;

namespace {

mori::link::byte_vector enclosed(const char* magic, byte_span body) {
  mori::link::byte_writer out;
  out.raw(mori::link::as_bytes(magic));
  out.u16(1), out.u16(1), out.u32(static_cast<uint32_t>(body.size()));
  out.raw(body);
  std::array<uint8_t, 16> sum{};
  keyed_hash({}, "mori-io descriptor", {out.view()}, sum);
  out.raw(std::as_bytes(std::span(sum)).first(8));
  return out.take();
}

bool is_line(const std::string& text) {
  return text == printable(text) && text.find('\n') == std::string::npos;
}

template <class Desc>
void check(byte_span bytes, mori::base::result<Desc> (*unpack)(byte_span)) {
  const auto got = unpack(bytes);
  if (!got) return fuzz::require(!got.error().text.empty());
  fuzz::require(is_line(text(*got)));
  const auto packed = pack(*got);
  fuzz::require(static_cast<bool>(packed));
  fuzz::require(packed->size() <= max_desc_bytes);
  // The same bytes, unless a newer writer appended to them.
  if (bytes[4] == std::byte{1} && bytes[5] == std::byte{0} && bytes[6] == std::byte{1})
    fuzz::require(std::ranges::equal(*packed, bytes));
  fuzz::require(*unpack(*packed) == *got);
  if constexpr (std::is_same_v<Desc, memory_desc>)
    for (const desc_blob& blob : got->blobs)
      if (const auto facts = unpack_process(blob)) fuzz::require(pack_process(*facts) == blob);
}

}  // namespace

void fuzz::descriptor(byte_span input) {
  if (input.empty() || input.size() > 2 * max_desc_bytes) return;
  const byte_span rest = input.subspan(1);
  switch (static_cast<uint8_t>(input[0]) % 4) {
    case 0: return check<engine_desc>(rest, unpack_engine);
    case 1: return check<memory_desc>(rest, unpack_memory);
    case 2: return check<engine_desc>(enclosed("MIOE", rest), unpack_engine);
    default: return check<memory_desc>(enclosed("MIOM", rest), unpack_memory);
  }
}
