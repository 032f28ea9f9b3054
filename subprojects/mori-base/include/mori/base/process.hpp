// process.hpp - what fork() does to us. A child inherits handles, descriptors
// and memory but none of our threads, so it may use nothing of ours: handles
// remember the fork generation they were made in, and every descriptor that a
// unique_fd owns is closed in the child (otherwise a parent's death would not
// close its connections while a child lives).
#pragma once

#include <cstdint>
#include <mutex>

namespace mori::base {

// 0 in the process that loaded the library, one more in each fork()ed child.
uint32_t fork_generation();

// For locks that a child may take again (handle tables, the log): held by the
// forking thread across fork(), so that the child never inherits one that a
// thread it does not have had taken. The lock must live for ever, and its owner
// may take no other such lock while holding it.
void hold_across_fork(std::mutex& lock);

// Descriptors to close in fork()ed children.
void close_in_child(int fd);
void forget_in_child(int fd);

}  // namespace mori::base
