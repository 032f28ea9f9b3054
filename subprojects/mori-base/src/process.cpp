// process.cpp - see process.hpp. The set and its lock are never destroyed: a
// thread of ours may outlive static destruction.
#include <mori/base/process.hpp>

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <vector>

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

std::vector<std::mutex*>& held_locks() {
  static auto* const locks = new std::vector<std::mutex*>;
  return *locks;
}

void release_held() {
  for (auto lock = held_locks().rbegin(); lock != held_locks().rend(); ++lock) (*lock)->unlock();
  set_lock().unlock();
}

// The set's lock is taken across fork() so that the child never sees a torn set.
void prepare() {
  set_lock().lock();
  for (std::mutex* lock : held_locks()) lock->lock();
}
void in_parent() { release_held(); }
void in_child() {
  generation.fetch_add(1, std::memory_order_relaxed);
  for (const int fd : descriptors()) ::close(fd);
  descriptors().clear();
  release_held();
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

void hold_across_fork(std::mutex& lock) {
  install_once();
  const std::lock_guard guard(set_lock());
  held_locks().push_back(&lock);
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
