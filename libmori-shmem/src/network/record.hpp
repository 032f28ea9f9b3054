// record.hpp - what PEs say to each other on a data connection. A frame's payload is
// any number of records, each a fixed header and, for some kinds, data behind it; large data of the
// last one is the frame's bulk.
// Both sides are the same version (checked while joining) and little-endian.
//
// Requests of the initiator, in the order of its commands:
//   put     bytes of data for `offset`; is_last: the command ends with them
//   signal  set or add `value` at `offset`; the command ends
//   atomic  operation on a word of word_bytes; is_last: no answer wanted
//   get     `value` bytes at `offset` are wanted
// Answers of the target, in the same order:
//   done    the oldest `value` commands that want no answer have been applied
//   before  `value` was in the word of the oldest command, an atomic
//   data    bytes for the oldest command, a get; is_last: all are here
// And goodbye: no request comes any more, and nobody will apply any.
#pragma once

#include <mori/link/bytes.hpp>

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace mori::shmem_core {

static_assert(std::endian::native == std::endian::little);

enum class record_kind : uint8_t {
  put = 1,
  signal = 2,
  atomic = 3,
  get = 4,
  done = 16,
  before = 17,
  data = 18,
  goodbye = 32
};

struct record {
  record_kind kind = record_kind::put;
  uint8_t operation = 0;  // MORI_SHMEM_SIGNAL_*, MORI_SHMEM_AMO_*
  uint8_t is_last = 0;
  uint8_t word_bytes = 0;
  uint32_t bytes = 0;  // of the data behind it
  uint64_t offset = 0;
  uint64_t value = 0;
  uint64_t compare = 0;
};
static_assert(sizeof(record) == 32 && std::is_trivially_copyable_v<record>);

inline constexpr uint16_t records_frame = 1;  // the only kind of frame
inline constexpr uint32_t largest_chunk_bytes = 256 << 10;
// Up to here data is copied into the frame, so that many commands share one.
inline constexpr uint32_t small_data_bytes = 2 << 10;
inline constexpr size_t full_text_bytes = 48 << 10;
inline constexpr uint32_t largest_payload_bytes =
    full_text_bytes + 2 * sizeof(record) + small_data_bytes;

inline void append(link::byte_vector& to, const record& what) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&what);
  to.insert(to.end(), bytes, bytes + sizeof what);
}

}  // namespace mori::shmem_core
