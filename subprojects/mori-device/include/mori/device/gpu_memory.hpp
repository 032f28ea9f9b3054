// gpu_memory.hpp - owners of what a gpu hands out. Each keeps the gpu alive. Move
// only; an empty one owns nothing. Read gpu.hpp first.
#pragma once

#include <mori/device/gpu.hpp>

#include <cstddef>
#include <utility>

namespace mori::device {

// Memory of the device, zeroed.
class device_buffer {
 public:
  static base::result<device_buffer> allocate(std::shared_ptr<gpu> on, uint64_t bytes);
  device_buffer() = default;
  device_buffer(device_buffer&& other) noexcept { swap(other); }
  device_buffer& operator=(device_buffer&& other) noexcept {
    device_buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~device_buffer() {
    if (address_ != 0) gpu_->free(address_);
  }
  void swap(device_buffer& other) noexcept {
    gpu_.swap(other.gpu_);
    std::swap(address_, other.address_);
  }
  uint64_t address() const { return address_; }

 private:
  std::shared_ptr<gpu> gpu_;
  uint64_t address_ = 0;
};

// Host memory that kernels reach, zeroed.
class pinned_buffer {
 public:
  static base::result<pinned_buffer> allocate(std::shared_ptr<gpu> on, uint64_t bytes);
  pinned_buffer() = default;
  pinned_buffer(pinned_buffer&& other) noexcept { swap(other); }
  pinned_buffer& operator=(pinned_buffer&& other) noexcept {
    pinned_buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~pinned_buffer() {
    if (begin_ != nullptr) gpu_->free_host(begin_);
  }
  void swap(pinned_buffer& other) noexcept {
    gpu_.swap(other.gpu_);
    std::swap(begin_, other.begin_);
  }
  std::byte* data() const { return static_cast<std::byte*>(begin_); }

 private:
  std::shared_ptr<gpu> gpu_;
  void* begin_ = nullptr;
};

// A range of addresses without memory, in which several mapped_memory may lie.
class address_range {
 public:
  // At a multiple of `alignment`.
  static base::result<std::shared_ptr<address_range>> reserve(std::shared_ptr<gpu> on,
                                                              uint64_t bytes, uint64_t alignment);
  address_range(std::shared_ptr<gpu> on, uint64_t address, uint64_t bytes)
      : gpu_(std::move(on)), address_(address), bytes_(bytes) {}
  address_range(const address_range&) = delete;
  address_range& operator=(const address_range&) = delete;
  ~address_range() { gpu_->release_addresses(address_, bytes_); }
  uint64_t address() const { return address_; }

 private:
  std::shared_ptr<gpu> gpu_;
  uint64_t address_;
  uint64_t bytes_;
};

// Physical memory of a device, mapped. What was imported stays mapped when its exporter dies.
class mapped_memory {
 public:
  // Where in a range it goes, instead of a range of its own.
  struct place {
    std::shared_ptr<address_range> range;
    uint64_t offset = 0;
  };
  // As the two below, in a range that has room there. Sizes are rounded up to the granule.
  static base::result<mapped_memory> create_in(std::shared_ptr<gpu> on, uint64_t bytes,
                                               const place& where);
  static base::result<mapped_memory> import_in(std::shared_ptr<gpu> on, int descriptor,
                                               uint64_t bytes, const place& where);

  // Rounded up to the granule; at an address that is a multiple of `alignment`. Zeroed.
  static base::result<mapped_memory> create(std::shared_ptr<gpu> on, uint64_t bytes,
                                            uint64_t alignment);
  // What another process (or this one) exported, of the same size.
  static base::result<mapped_memory> import(std::shared_ptr<gpu> on, int descriptor, uint64_t bytes,
                                            uint64_t alignment);
  mapped_memory() = default;
  mapped_memory(mapped_memory&& other) noexcept { swap(other); }
  mapped_memory& operator=(mapped_memory&& other) noexcept {
    mapped_memory(std::move(other)).swap(*this);
    return *this;
  }
  ~mapped_memory();
  void swap(mapped_memory& other) noexcept;

  uint64_t address() const { return address_; }
  base::result<base::unique_fd> export_descriptor() const { return gpu_->export_memory(memory_); }

 private:
  base::status map_at(uint64_t bytes, uint64_t alignment);
  base::status map_in(uint64_t bytes, const place& where);

  std::shared_ptr<gpu> gpu_;
  uint64_t memory_ = 0;
  uint64_t address_ = 0;
  uint64_t reserved_bytes_ = 0;           // of a range of its own, or
  std::shared_ptr<address_range> range_;  // one that others share
  uint64_t mapped_bytes_ = 0;
};

// A stream as callers make them; the library's own work goes to gpu::helper_stream().
class own_stream {
 public:
  static base::result<own_stream> create(std::shared_ptr<gpu> on);
  own_stream() = default;
  own_stream(own_stream&& other) noexcept { swap(other); }
  own_stream& operator=(own_stream&& other) noexcept {
    own_stream(std::move(other)).swap(*this);
    return *this;
  }
  ~own_stream() {
    if (stream_ != nullptr) gpu_->destroy_stream(stream_);
  }
  void swap(own_stream& other) noexcept {
    gpu_.swap(other.gpu_);
    std::swap(stream_, other.stream_);
  }
  void* get() const { return stream_; }

 private:
  std::shared_ptr<gpu> gpu_;
  void* stream_ = nullptr;
};

inline uint64_t address_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace mori::device
