// far_memory.hpp - lets a test body that holds its data in vectors run on every back
// end: inputs are uploaded to where kernels read, outputs downloaded from there. On the
// host both are the data itself. MORI_BACKEND says which; on a GPU the calls are made
// synchronous by MORI_CHECK=sync, so that they answer as on the host, and each thread
// (a rank) has a stream of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace ep_test {

// Whether MORI_BACKEND names a GPU.
bool is_far();

// The calling thread's stream, null on the host.
void* own_stream();

// An array where kernels read it, for as long as this lives.
class uploaded {
 public:
  uploaded(const void* from, uint64_t bytes);
  template <class T>
  explicit uploaded(const std::vector<T>& from) : uploaded(from.data(), from.size() * sizeof(T)) {}
  ~uploaded();
  uploaded(const uploaded&) = delete;
  uploaded& operator=(const uploaded&) = delete;

  template <class T>
  const T* as() const {
    return static_cast<const T*>(at_);
  }

 private:
  struct far;
  std::unique_ptr<far> far_;
  const void* at_ = nullptr;
};

// Copies between the two sides; at once.
void copy_bytes(void* to, const void* from, uint64_t bytes);

template <class T>
std::vector<T> downloaded(const T* from, uint64_t count) {
  std::vector<T> made(from == nullptr ? 0 : count);
  copy_bytes(made.data(), from, made.size() * sizeof(T));
  return made;
}

}  // namespace ep_test
