// sanitizer.hpp - what tests must know of the sanitizer they run under.
#pragma once

namespace mori::base {

// ThreadSanitizer's own locks are not all safe in a child that was forked while
// other threads ran: such a child may hang in the sanitizer's runtime.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool under_tsan = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool under_tsan = true;
#else
inline constexpr bool under_tsan = false;
#endif
#else
inline constexpr bool under_tsan = false;
#endif

}  // namespace mori::base
