// process.hpp - what fork() does to us. A child inherits handles, descriptors
// and memory but none of our threads, so it may use nothing of ours: handles
// remember the fork generation they were made in, and every descriptor that a
// unique_fd owns is closed in the child (otherwise a parent's death would not
// close its connections while a child lives).
#pragma once

#include <cstdint>

namespace mori::base {

// 0 in the process that loaded the library, one more in each fork()ed child.
uint32_t fork_generation();

// Descriptors to close in fork()ed children.
void close_in_child(int fd);
void forget_in_child(int fd);

}  // namespace mori::base
