// result.hpp - how internal code says that something failed: a value or an
// `failure` (status, errno, text that names value and limit). Nothing in the
// libraries throws on purpose; boundary.hpp turns both this and stray
// exceptions into the C record. Read boundary.hpp next.
#pragma once

#include <fmt/core.h>
#include <mori/base.h>

#include <cassert>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace mori::base {

struct failure {
  mori_status status = MORI_E_INTERNAL;
  int os_errno = 0;
  std::string text;
};

// fail(MORI_E_INVALID, "pe {} is outside 0 .. {}", pe, count - 1)
template <class... Args>
[[nodiscard]] failure fail(mori_status status, fmt::format_string<Args...> format, Args&&... args) {
  return {status, 0, fmt::format(format, std::forward<Args>(args)...)};
}

// As fail, with the errno of a system call; its text is appended.
template <class... Args>
[[nodiscard]] failure fail_os(int os_errno, fmt::format_string<Args...> format, Args&&... args) {
  const mori_status status =
      os_errno == ENOMEM || os_errno == ENOSPC ? MORI_E_NO_MEMORY : MORI_E_OS;
  char buffer[128] = {};
  const char* reason = strerror_r(os_errno, buffer, sizeof buffer);
  return {status, os_errno,
          fmt::format("{}: {}", fmt::format(format, std::forward<Args>(args)...), reason)};
}

// A T or a failure. Ask first (`if (!r) return r.error();`), then take.
template <class T>
class [[nodiscard]] result {
 public:
  result(T value) : held_(std::in_place_index<0>, std::move(value)) {}
  result(failure e) : held_(std::in_place_index<1>, std::move(e)) {}

  explicit operator bool() const { return held_.index() == 0; }
  T& value() & {
    assert(*this);
    return std::get<0>(held_);
  }
  const T& value() const& {
    assert(*this);
    return std::get<0>(held_);
  }
  T&& value() && {
    assert(*this);
    return std::get<0>(std::move(held_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  failure& error() {
    assert(!*this);
    return std::get<1>(held_);
  }
  const failure& error() const {
    assert(!*this);
    return std::get<1>(held_);
  }

 private:
  std::variant<T, failure> held_;
};

template <>
class [[nodiscard]] result<void> {
 public:
  result() = default;
  result(failure e) : held_(std::move(e)) {}

  explicit operator bool() const { return !held_.has_value(); }
  failure& error() {
    assert(!*this);
    return *held_;
  }
  const failure& error() const {
    assert(!*this);
    return *held_;
  }

 private:
  std::optional<failure> held_;
};

using status = result<void>;

}  // namespace mori::base

// Returns from the enclosing function with the error of `expression`, if any.
#define MORI_CHECK(expression)                                                                   \
  do {                                                                                           \
    if (auto mori_checked = (expression); !mori_checked) return std::move(mori_checked.error()); \
  } while (0)

#define MORI_JOIN_INNER(a, b) a##b
#define MORI_JOIN(a, b) MORI_JOIN_INNER(a, b)

// MORI_TRY(auto fd, open_it(path)): declares fd, or returns the error.
#define MORI_TRY(declaration, expression)                       \
  auto MORI_JOIN(mori_tried_, __LINE__) = (expression);         \
  if (!MORI_JOIN(mori_tried_, __LINE__))                        \
    return std::move(MORI_JOIN(mori_tried_, __LINE__).error()); \
  declaration = std::move(*MORI_JOIN(mori_tried_, __LINE__))
