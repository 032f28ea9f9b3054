// ring.hpp - a queue that allocates only while it grows beyond what it once held.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace mori::io_core::protocol {

template <class T>
class ring {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  T& front() { return items_[head_]; }
  T& back() { return (*this)[size_ - 1]; }
  T& operator[](size_t index) { return items_[(head_ + index) & (items_.size() - 1)]; }
  void push_back(T value) {
    if (size_ == items_.size()) grow();
    items_[(head_ + size_++) & (items_.size() - 1)] = std::move(value);
  }
  T pop_front() {
    T taken = std::move(items_[head_]);
    items_[head_] = T();
    head_ = (head_ + 1) & (items_.size() - 1);
    --size_;
    return taken;
  }
  void clear() {
    while (!empty()) pop_front();
  }

 private:
  void grow() {
    std::vector<T> larger(items_.empty() ? 16 : 2 * items_.size());
    for (size_t i = 0; i < size_; ++i) larger[i] = std::move((*this)[i]);
    items_ = std::move(larger);
    head_ = 0;
  }
  std::vector<T> items_;  // a power of two long
  size_t head_ = 0;
  size_t size_ = 0;
};

}  // namespace mori::io_core::protocol
