// limits.hpp - every bound of the wire format, in one place. What exceeds one
// of them is refused before it is stored, by sender and receiver alike.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mori::io_core::wire {

// Descriptors.
inline constexpr size_t max_key_bytes = 128;   // engine key, mori_io_options::in_key
inline constexpr size_t max_node_bytes = 64;   // node id
inline constexpr size_t max_host_bytes = 255;  // hostname
inline constexpr size_t max_bus_id_bytes = 31;
inline constexpr size_t max_desc_addresses = 8;
inline constexpr size_t max_blobs = 16;
inline constexpr size_t max_blob_bytes = 1024;
inline constexpr size_t max_desc_bytes = 32 * 1024;  // packed, either kind

// Frames. A frame is header | body | tag, then its payload.
inline constexpr size_t header_bytes = 16;
inline constexpr size_t tag_bytes = 16;
inline constexpr size_t max_body_bytes = 32 * 1024;
inline constexpr size_t max_frame_bytes = header_bytes + max_body_bytes + tag_bytes;
inline constexpr uint32_t max_payload_bytes = 64u << 20;  // chunk_bytes' upper bound

// The only flag of frames: the body begins with a capability, which nobody on the
// path may read.
inline constexpr uint8_t frame_masked = 0x80;

// Messages.
inline constexpr size_t max_segments = 1024;  // of one slice
inline constexpr uint32_t max_slices = 1u << 24;
inline constexpr size_t max_metadata_bytes = 1024;
inline constexpr size_t max_inline_bytes = 16 * 1024;  // payload inside the body
inline constexpr size_t max_acks = 1024;
inline constexpr size_t max_resume_bits = 128 * 1024;  // sequences in one resume answer
inline constexpr size_t max_resume_failures = 256;
inline constexpr size_t max_text_bytes = 239;  // fits mori_error::message

// The version of messages and frames that this library speaks; the handshake
// agrees on the highest that both know.
inline constexpr uint16_t least_protocol_version = 1;
inline constexpr uint16_t protocol_version = 1;

}  // namespace mori::io_core::wire
