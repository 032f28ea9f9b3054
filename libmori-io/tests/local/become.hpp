// become.hpp - the program anew as another user, for programs that tests start as one.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <string>

namespace mori::io_test {

// A changed user alone would leave the process one that may not be dumped; and the file may be
// where that user cannot look. Returns only when it failed.
inline void become(const std::string& user, char* program) {
  const auto id = static_cast<unsigned>(std::stoul(user));
  const int self = ::open("/proc/self/exe", O_RDONLY);
  char* arguments[] = {program, nullptr};
  if (self < 0 || ::setgid(id) != 0 || ::setuid(id) != 0) return;
  ::fexecve(self, arguments, environ);
}

}  // namespace mori::io_test
