// result.hpp - how the header-only C++ wrappers of mori report failure. Every
// call returns a `mori::result<T>`; the user chooses: test it and read
// `.error()`, or call `.value()`, which throws `mori::exception` on failure.
// Nothing here crosses a library boundary: it is built into the user's program
// over the C ABI. Read shmem.hpp, ep.hpp or io.hpp next.
#pragma once

#include <mori/base.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace mori {

// What the C record carries, as C++.
struct error_info {
  mori_status status = MORI_E_INTERNAL;
  int os_errno = 0;
  std::string message;
};

// Thrown by result::value() alone; what() is the message.
class exception : public std::runtime_error {
 public:
  explicit exception(error_info info) : std::runtime_error(info.message), info_(std::move(info)) {}
  const error_info& info() const noexcept { return info_; }
  mori_status status() const noexcept { return info_.status; }

 private:
  error_info info_;
};

namespace detail {
struct nothing {};
template <class T>
struct held {
  using type = T;
};
template <>
struct held<void> {
  using type = nothing;
};
}  // namespace detail

// A T, or the reason why there is none.
template <class T>
class [[nodiscard]] result {
  using value_type = typename detail::held<T>::type;

 public:
  result(value_type value) : held_(std::in_place_index<0>, std::move(value)) {}
  result(error_info error) : held_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const noexcept { return held_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  // Throws mori::exception when there is no value.
  value_type& value() & {
    demand();
    return std::get<0>(held_);
  }
  value_type&& value() && {
    demand();
    return std::get<0>(std::move(held_));
  }
  value_type& operator*() & { return value(); }
  value_type&& operator*() && { return std::move(*this).value(); }
  value_type* operator->() { return &value(); }

  // The failure; status MORI_OK when there is a value.
  error_info error() const { return has_value() ? error_info{MORI_OK, 0, {}} : std::get<1>(held_); }
  mori_status status() const noexcept {
    return has_value() ? static_cast<mori_status>(MORI_OK) : std::get<1>(held_).status;
  }

 private:
  void demand() const {
    if (!has_value()) throw exception(std::get<1>(held_));
  }
  std::variant<value_type, error_info> held_;
};

namespace detail {

// Calls `function(arguments..., &record)` and returns its failure, if any.
template <class Function, class... Arguments>
result<void> call(Function&& function, Arguments... arguments) {
  mori_error record = MORI_ERROR_INIT;
  const mori_status status = function(arguments..., &record);
  if (status == MORI_OK) return nothing{};
  return error_info{status, record.os_errno, record.message};
}

// An options, report or argument struct with its struct_size set, rest zero.
template <class Struct>
Struct sized() {
  Struct made{};
  made.struct_size = sizeof made;
  return made;
}

}  // namespace detail
}  // namespace mori
