// boundary.hpp - the one place where C meets C++. Every exported function is
// one call of `guard`, which lets no exception out; structs from the caller
// come in through `read_struct` and go out through `write_struct`, which keep
// the struct_size rule of mori/base.h.
#pragma once

#include <mori/base/result.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <type_traits>

namespace mori::base {

const char* status_name(mori_status status);

// Fills the caller's record (NULL is fine) and returns the status.
mori_status report(const failure& e, mori_error* out);

// Runs `body` (returns status); turns its error or exception into a status.
template <class Body>
mori_status guard(mori_error* out, Body&& body) noexcept {
  try {
    status outcome = body();
    return outcome ? static_cast<mori_status>(MORI_OK) : report(outcome.error(), out);
  } catch (const std::bad_alloc&) {
    return report({MORI_E_NO_MEMORY, 0, "out of host memory"}, out);
  } catch (const std::exception& e) {
    return report({MORI_E_INTERNAL, 0, e.what()}, out);
  } catch (...) {
    return report({MORI_E_INTERNAL, 0, "unknown exception"}, out);
  }
}

// Bytes of a struct that the caller gave; first_bytes is its size in the first
// release. Copies into `to` (already zeroed) or says why not.
status read_struct_bytes(const void* from, const char* name, size_t first_bytes, size_t known_bytes,
                         void* to);
status write_struct_bytes(void* to, const char* name, size_t first_bytes, size_t known_bytes,
                          const void* from);

// first_bytes must be given by the caller of the template once T has grown.
template <class T>
result<T> read_struct(const T* from, const char* name, size_t first_bytes = sizeof(T)) {
  static_assert(std::is_trivially_copyable_v<T> && offsetof(T, struct_size) == 0);
  T copy{};
  MORI_CHECK(read_struct_bytes(from, name, first_bytes, sizeof(T), &copy));
  return copy;
}

template <class T>
status check_struct(const T* to, const char* name, size_t first_bytes = sizeof(T)) {
  return write_struct_bytes(const_cast<T*>(to), name, first_bytes, sizeof(T), nullptr);
}

// Keeps the caller's struct_size.
template <class T>
status write_struct(T* to, const char* name, const T& from, size_t first_bytes = sizeof(T)) {
  static_assert(std::is_trivially_copyable_v<T> && offsetof(T, struct_size) == 0);
  return write_struct_bytes(to, name, first_bytes, sizeof(T), &from);
}

template <class T>
status check_out(T* pointer, const char* name) {
  if (pointer == nullptr) return fail(MORI_E_INVALID, "{} is NULL", name);
  return {};
}

}  // namespace mori::base
