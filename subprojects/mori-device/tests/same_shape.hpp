// same_shape.hpp - whether two types are passed alike, for comparing a call that was
// declared by hand with the vendor's header: same size and class of every parameter,
// and the same behind pointers. Names of types and enumerators do not count.
#pragma once

#include <cstddef>
#include <type_traits>

namespace mori::test {

template <class T, class = void>
inline constexpr bool complete = false;
template <class T>
inline constexpr bool complete<T, std::void_t<decltype(sizeof(T))>> = !std::is_void_v<T>;

template <class A, class B>
constexpr bool same_shape();

// An opaque handle is a pointer to something unknown on one side or both.
template <class A, class B>
constexpr bool same_target() {
  if constexpr (!complete<A> || !complete<B>)
    return true;
  else
    return same_shape<A, B>();
}

template <class A, class B>
constexpr bool same_shape() {
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>)
    return same_target<std::remove_cv_t<std::remove_pointer_t<A>>,
                       std::remove_cv_t<std::remove_pointer_t<B>>>();
  else if constexpr (std::is_class_v<A> || std::is_class_v<B>)
    return std::is_class_v<A> && std::is_class_v<B> && sizeof(A) == sizeof(B) &&
           alignof(A) == alignof(B) &&
           std::is_trivially_copyable_v<A> == std::is_trivially_copyable_v<B>;
  else if constexpr (std::is_void_v<A> || std::is_void_v<B>)
    return std::is_void_v<A> && std::is_void_v<B>;
  else
    return (std::is_integral_v<A> || std::is_enum_v<A>) &&
           (std::is_integral_v<B> || std::is_enum_v<B>) && sizeof(A) == sizeof(B);
}

// Whether two pointers to functions can stand for each other.
template <class A, class B>
struct same_call;
template <class ResultA, class... A, class ResultB, class... B>
struct same_call<ResultA (*)(A...), ResultB (*)(B...)> {
  static constexpr bool same_count = sizeof...(A) == sizeof...(B);
  static constexpr bool same_parameters() {
    if constexpr (same_count)
      return (same_shape<A, B>() && ...);
    else
      return false;
  }
  static constexpr bool value = same_parameters() && same_shape<ResultA, ResultB>();
};

static_assert(same_call<int (*)(void*, unsigned), int (*)(int*, int)>::value);
static_assert(!same_call<int (*)(int), int (*)(int, int)>::value);
static_assert(!same_call<int (*)(int), int (*)(long)>::value);
static_assert(!same_call<int (*)(int*), int (*)(size_t*)>::value);
static_assert(!same_call<int (*)(int), int (*)(void*)>::value);

}  // namespace mori::test
