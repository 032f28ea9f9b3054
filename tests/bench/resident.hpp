// resident.hpp - the memory that this process keeps in RAM besides symmetric
// heaps, from /proc/self/smaps. The pages of a heap exist once, whoever maps them; so a peer's
// heap is not this process's memory either.
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace mori_bench {

// Bytes of all mappings but the heaps (the library's memory files) and the benchmark's own shared
// memory (anonymous, which the system calls /dev/zero). Program and libraries count.
inline std::uint64_t resident_bytes_beyond_heaps() {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool counts = false;
  std::uint64_t kibibytes = 0;
  while (std::getline(maps, line)) {
    std::istringstream words(line);
    std::string first, second;
    words >> first >> second;
    if (first.back() != ':')  // the first line of a mapping: addresses, and at its end a name
      counts = line.find("/memfd:mori-segment") == std::string::npos &&
               line.find("/dev/zero") == std::string::npos;
    else if (counts && first == "Rss:")
      kibibytes += std::stoull(second);
  }
  return kibibytes * 1024;
}

}  // namespace mori_bench
