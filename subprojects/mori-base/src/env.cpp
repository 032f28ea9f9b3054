// env.cpp - see env.hpp.
#include <mori/base/env.hpp>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

namespace mori::base {

std::optional<std::string> env_text(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

result<std::optional<uint64_t>> env_number(const char* name, uint64_t minimum, uint64_t maximum) {
  const auto text = env_text(name);
  if (!text) return std::optional<uint64_t>();
  uint64_t number = 0;
  const char* end = text->data() + text->size();
  const auto [stop, problem] = std::from_chars(text->data(), end, number);
  if (problem != std::errc() || stop != end || number < minimum || number > maximum)
    return fail(MORI_E_INVALID, "{}='{}' is not a whole number in {} .. {}", name, *text, minimum,
                maximum);
  return std::optional<uint64_t>(number);
}

result<std::optional<bool>> env_flag(const char* name) {
  auto text = env_text(name);
  if (!text) return std::optional<bool>();
  std::string lower = *text;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower == "1" || lower == "true" || lower == "on" || lower == "yes")
    return std::optional<bool>(true);
  if (lower == "0" || lower == "false" || lower == "off" || lower == "no")
    return std::optional<bool>(false);
  return fail(MORI_E_INVALID, "{}='{}' is none of 1/true/on/yes, 0/false/off/no", name, *text);
}

result<uint64_t> parse_bytes(std::string_view text) {
  uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, number);
  std::string_view unit(stop, static_cast<size_t>(end - stop));
  const auto bad = [&] {
    return fail(MORI_E_INVALID, "'{}' is not a size such as 4096, 512MiB or 6G", text);
  };
  if (problem != std::errc()) return bad();
  int shift = 0;
  if (!unit.empty()) {
    constexpr std::string_view letters = "KMGT";
    const auto at =
        letters.find(static_cast<char>(std::toupper(static_cast<unsigned char>(unit[0]))));
    if (at != std::string_view::npos) {
      shift = static_cast<int>(at + 1) * 10;
      unit.remove_prefix(1);
      if (!unit.empty() && (unit[0] == 'i' || unit[0] == 'I')) unit.remove_prefix(1);
    }
    if (!unit.empty() && (unit[0] == 'B' || unit[0] == 'b')) unit.remove_prefix(1);
    if (!unit.empty()) return bad();
  }
  if (number > (UINT64_MAX >> shift))
    return fail(MORI_E_INVALID, "'{}' is more than {} bytes", text, UINT64_MAX);
  return number << shift;
}

result<std::optional<uint64_t>> env_bytes(const char* name) {
  const auto text = env_text(name);
  if (!text) return std::optional<uint64_t>();
  auto parsed = parse_bytes(*text);
  if (!parsed) return fail(MORI_E_INVALID, "{}: {}", name, parsed.error().text);
  return std::optional<uint64_t>(*parsed);
}

}  // namespace mori::base
