// env.hpp - reading environment variables strictly: a value that does not
// parse is an error that names variable, value and what is accepted. Unset and
// empty mean "not given".
#pragma once

#include <mori/base/result.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mori::base {

std::optional<std::string> env_text(const char* name);

// Decimal, minimum .. maximum.
result<std::optional<uint64_t>> env_number(const char* name, uint64_t minimum, uint64_t maximum);

// 1/true/on/yes or 0/false/off/no, any case.
result<std::optional<bool>> env_flag(const char* name);

// "6G", "512MiB", "1024", "1.5 GiB" is refused: whole numbers with K M G T, an
// optional "i", an optional "B"; all are powers of 1024.
result<std::optional<uint64_t>> env_bytes(const char* name);
result<uint64_t> parse_bytes(std::string_view text);

}  // namespace mori::base
