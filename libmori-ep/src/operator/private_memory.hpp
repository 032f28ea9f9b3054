// private_memory.hpp - one zeroed block of ordinary memory, page-aligned, owned.
// Pages are taken when first touched.
#pragma once

#include <mori/base/result.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace mori::ep_core {

class private_memory {
 public:
  // Fails with MORI_E_NO_MEMORY.
  static base::result<private_memory> allocate(uint64_t size_bytes);

  private_memory() = default;
  private_memory(private_memory&& other) noexcept
      : begin_(std::exchange(other.begin_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  private_memory& operator=(private_memory&& other) noexcept {
    std::swap(begin_, other.begin_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~private_memory();

  std::byte* at(uint64_t offset) const { return begin_ + offset; }

 private:
  private_memory(std::byte* begin, uint64_t bytes) : begin_(begin), bytes_(bytes) {}
  std::byte* begin_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace mori::ep_core
