// process.cpp - see process.hpp. The set and its lock are never destroyed: a
// thread of ours may outlive static destruction.
#include <mori/base/process.hpp>

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>

namespace mori::base {
namespace {

std::atomic<uint32_t> generation{0};

std::mutex& set_lock() {
  static auto* const lock = new std::mutex;
  return *lock;
}

std::set<int>& descriptors() {
  static auto* const set = new std::set<int>;
  return *set;
}

// The lock is taken across fork() so that the child never sees a torn set.
void prepare() { set_lock().lock(); }
void in_parent() { set_lock().unlock(); }
void in_child() {
  generation.fetch_add(1, std::memory_order_relaxed);
  for (const int fd : descriptors()) ::close(fd);
  descriptors().clear();
  set_lock().unlock();
}

void install_once() {
  static const int installed = pthread_atfork(prepare, in_parent, in_child);
  (void)installed;
}

}  // namespace

uint32_t fork_generation() {
  install_once();
  return generation.load(std::memory_order_relaxed);
}

void close_in_child(int fd) {
  install_once();
  const std::lock_guard guard(set_lock());
  descriptors().insert(fd);
}

void forget_in_child(int fd) {
  const std::lock_guard guard(set_lock());
  descriptors().erase(fd);
}

}  // namespace mori::base
