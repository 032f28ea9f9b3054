// headroom.cpp - see headroom.hpp. Both versions of cgroups: a limit holds for
// all groups below it, so each group from the process's own up to the root counts.
#include "memory/headroom.hpp"

#include <mori/base/result.hpp>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>

namespace mori::link {
namespace {

constexpr uint64_t largest_margin_bytes = 32 << 20;

std::optional<uint64_t> to_number(const std::string& text) {
  uint64_t value = 0;
  const auto end = text.data() + text.size();
  const auto [stopped, problem] = std::from_chars(text.data(), end, value);
  if (problem != std::errc{} || stopped == text.data()) return {};  // "max"
  return value;
}

std::optional<uint64_t> number_in(const std::string& path) {
  std::string word;
  std::ifstream(path) >> word;
  return to_number(word);
}

// The number behind a key: "MemAvailable:  123 kB", "inactive_file 4096".
std::optional<uint64_t> number_behind(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, value;
    words >> name >> value;
    if (name == key) return to_number(value);
  }
  return {};
}

uint64_t above(uint64_t limit, uint64_t used) { return limit > used ? limit - used : 0; }

// Names of the files, which the two versions spell differently.
struct controller {
  const char* limit;
  const char* used;
  const char* reclaimable;  // in memory.stat: file pages that go first
  const char* swap_limit;   // version 1: of memory and swap together
  const char* swap_used;
  bool swap_limit_includes_memory;
};

constexpr controller version_1{"memory.limit_in_bytes",       "memory.usage_in_bytes",
                               "total_inactive_file",         "memory.memsw.limit_in_bytes",
                               "memory.memsw.usage_in_bytes", true};
constexpr controller version_2{"memory.max",      "memory.current",      "inactive_file",
                               "memory.swap.max", "memory.swap.current", false};

class search {
 public:
  explicit search(const headroom_sources& from) : from_(from) {
    const std::string path = from.proc + "/meminfo";
    free_swap_ = number_behind(path, "SwapFree:").value_or(0) * 1024;
    const auto available = number_behind(path, "MemAvailable:");
    const auto total = number_behind(path, "MemTotal:");
    if (available && total) consider(*available * 1024 + free_swap_, *total * 1024, "this machine");
  }

  void look_at_groups() {
    std::ifstream file(from_.proc + "/self/cgroup");
    for (std::string line; std::getline(file, line);) {
      const size_t first = line.find(':');
      const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
      if (second == std::string::npos) continue;
      const std::string controllers =
          fmt::format(",{},", line.substr(first + 1, second - first - 1));
      const std::string path = line.substr(second + 1);
      if (controllers == ",,") climb(from_.cgroups, path, version_2);
      if (controllers.find(",memory,") != std::string::npos)
        climb(from_.cgroups + "/memory", path, version_1);
    }
  }

  headroom found() && { return std::move(found_); }

 private:
  void climb(const std::string& mount, std::string path, const controller& names) {
    for (;;) {
      if (path == "/") path.clear();
      look_at(mount + path + "/", path, names);
      if (path.empty()) return;
      path.erase(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }

  void look_at(const std::string& folder, const std::string& path, const controller& names) {
    const auto limit = number_in(folder + names.limit);
    const auto used = number_in(folder + names.used);
    if (!limit || !used) return;
    const uint64_t reclaimable =
        number_behind(folder + "memory.stat", names.reclaimable).value_or(0);
    const auto swap_limit = number_in(folder + names.swap_limit);
    const auto swap_used = number_in(folder + names.swap_used);
    uint64_t swap = free_swap_;
    if (swap_limit && swap_used && !names.swap_limit_includes_memory)
      swap = std::min(swap, above(*swap_limit, *swap_used));
    uint64_t room = above(*limit, *used) + swap;
    if (swap_limit && swap_used && names.swap_limit_includes_memory)
      room = std::min(room, above(*swap_limit, *swap_used));
    consider(room + std::min(reclaimable, *used), *limit,
             fmt::format("memory cgroup '{}'", path.empty() ? "/" : path));
  }

  void consider(uint64_t bytes, uint64_t limit_bytes, std::string whose) {
    if (bytes >= found_.bytes) return;
    found_ = {bytes, std::min(largest_margin_bytes, limit_bytes / 16), std::move(whose)};
  }

  const headroom_sources& from_;
  uint64_t free_swap_ = 0;
  headroom found_;
};

}  // namespace

headroom memory_headroom(const headroom_sources& from) {
  search all(from);
  all.look_at_groups();
  return std::move(all).found();
}

}  // namespace mori::link
