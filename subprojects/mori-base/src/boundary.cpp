// boundary.cpp - see boundary.hpp.
#include <mori/base/boundary.hpp>

#include <algorithm>

namespace mori::base {

const char* status_name(mori_status status) {
  switch (status) {
    case MORI_OK: return "MORI_OK";
    case MORI_E_INVALID: return "MORI_E_INVALID";
    case MORI_E_STATE: return "MORI_E_STATE";
    case MORI_E_NO_MEMORY: return "MORI_E_NO_MEMORY";
    case MORI_E_MISMATCH: return "MORI_E_MISMATCH";
    case MORI_E_TIMEOUT: return "MORI_E_TIMEOUT";
    case MORI_E_PEER_DEAD: return "MORI_E_PEER_DEAD";
    case MORI_E_ABORTED: return "MORI_E_ABORTED";
    case MORI_E_UNSUPPORTED: return "MORI_E_UNSUPPORTED";
    case MORI_E_UNAVAILABLE: return "MORI_E_UNAVAILABLE";
    case MORI_E_OS: return "MORI_E_OS";
    case MORI_E_PROTOCOL: return "MORI_E_PROTOCOL";
    case MORI_E_AUTH: return "MORI_E_AUTH";
    case MORI_E_OVERFLOW: return "MORI_E_OVERFLOW";
    case MORI_E_NOT_FOUND: return "MORI_E_NOT_FOUND";
    case MORI_E_VERSION: return "MORI_E_VERSION";
    case MORI_E_AGAIN: return "MORI_E_AGAIN";
    case MORI_E_CANCELLED: return "MORI_E_CANCELLED";
    case MORI_E_INTERNAL: return "MORI_E_INTERNAL";
    default: return "MORI_E_?";
  }
}

mori_status report(const failure& e, mori_error* out) {
  if (out == nullptr) return e.status;
  constexpr uint64_t first_bytes = 256;
  const uint64_t room = out->struct_size == 0 ? first_bytes : out->struct_size;
  // A caller's struct too small to hold the status gets the return value alone.
  if (room < offsetof(mori_error, message) + 1) return e.status;
  out->status = e.status;
  out->os_errno = e.os_errno;
  const size_t text_room =
      std::min<size_t>(room - offsetof(mori_error, message), sizeof out->message) - 1;
  size_t size = std::min(e.text.size(), text_room);
  // Do not cut a UTF-8 sequence in two.
  if (size < e.text.size())
    while (size > 0 && (static_cast<unsigned char>(e.text[size]) & 0xC0) == 0x80) --size;
  std::memcpy(out->message, e.text.data(), size);
  out->message[size] = '\0';
  return e.status;
}

namespace {

result<uint64_t> struct_size_of(const void* given, const char* name, size_t first_bytes) {
  if (given == nullptr) return fail(MORI_E_INVALID, "{} is NULL", name);
  uint64_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size < first_bytes)
    return fail(MORI_E_INVALID, "{}.struct_size is {}, at least {} is needed: set it to sizeof({})",
                name, size, first_bytes, name);
  // Nothing of ours grows to this; a wild value must not make us read far.
  constexpr uint64_t largest = 65'536;
  if (size > largest)
    return fail(MORI_E_INVALID, "{}.struct_size is {}, more than {}", name, size, largest);
  return size;
}

}  // namespace

status read_struct_bytes(const void* from, const char* name, size_t first_bytes, size_t known_bytes,
                         void* to) {
  MORI_TRY(const uint64_t size, struct_size_of(from, name, first_bytes));
  const auto* bytes = static_cast<const unsigned char*>(from);
  for (uint64_t at = known_bytes; at < size; ++at)
    if (bytes[at] != 0)
      return fail(MORI_E_VERSION,
                  "{} has {} bytes, this library knows {}, and byte {} is set: a newer option",
                  name, size, known_bytes, at);
  std::memcpy(to, from, std::min<size_t>(size, known_bytes));
  return {};
}

status write_struct_bytes(void* to, const char* name, size_t first_bytes, size_t known_bytes,
                          const void* from) {
  MORI_TRY(const uint64_t size, struct_size_of(to, name, first_bytes));
  if (from == nullptr) return {};
  const size_t used = std::min<size_t>(size, known_bytes);
  std::memcpy(static_cast<unsigned char*>(to) + sizeof size,
              static_cast<const unsigned char*>(from) + sizeof size, used - sizeof size);
  return {};
}

}  // namespace mori::base
