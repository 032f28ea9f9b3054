// format.cpp - the one translation unit that compiles fmt. Everywhere else only
// fmt/core.h is included, which costs a tenth of the time; its fmt::format calls
// the vformat that is emitted here. Nothing links libfmt.
#define FMT_HEADER_ONLY 1
#include <fmt/format.h>

namespace mori::base {

// Taking the address makes the compiler emit the inline function.
extern std::string (*const format_anchor)(fmt::string_view, fmt::format_args);
std::string (*const format_anchor)(fmt::string_view, fmt::format_args) = &fmt::vformat;

}  // namespace mori::base
