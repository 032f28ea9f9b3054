// gpu_memory.cpp - see gpu_memory.hpp.
#include <mori/device/gpu_memory.hpp>

namespace mori::device {

base::result<device_buffer> device_buffer::allocate(std::shared_ptr<gpu> on, uint64_t bytes) {
  device_buffer made;
  MORI_TRY(made.address_, on->allocate(bytes));
  made.gpu_ = std::move(on);
  MORI_CHECK(made.gpu_->fill_now(made.address_, 0, bytes));
  return made;
}

base::result<pinned_buffer> pinned_buffer::allocate(std::shared_ptr<gpu> on, uint64_t bytes) {
  pinned_buffer made;
  MORI_TRY(made.begin_, on->allocate_host(bytes));
  made.gpu_ = std::move(on);
  return made;
}

base::result<std::shared_ptr<address_range>> address_range::reserve(std::shared_ptr<gpu> on,
                                                                    uint64_t bytes,
                                                                    uint64_t alignment) {
  MORI_TRY(const uint64_t address, on->reserve_addresses(bytes, alignment));
  return std::make_shared<address_range>(std::move(on), address, bytes);
}

base::result<mapped_memory> mapped_memory::create_in(std::shared_ptr<gpu> on, uint64_t bytes,
                                                     const place& where) {
  mapped_memory made;
  made.gpu_ = std::move(on);
  MORI_TRY(const uint64_t granule, made.gpu_->granule_bytes());
  const uint64_t rounded = (bytes + granule - 1) / granule * granule;
  MORI_TRY(made.memory_, made.gpu_->create_memory(rounded));
  MORI_CHECK(made.map_in(rounded, where));
  MORI_CHECK(made.gpu_->fill_now(made.address_, 0, rounded));
  return made;
}

base::result<mapped_memory> mapped_memory::import_in(std::shared_ptr<gpu> on, int descriptor,
                                                     uint64_t bytes, const place& where) {
  mapped_memory made;
  made.gpu_ = std::move(on);
  MORI_TRY(const uint64_t granule, made.gpu_->granule_bytes());
  MORI_TRY(made.memory_, made.gpu_->import_memory(descriptor));
  MORI_CHECK(made.map_in((bytes + granule - 1) / granule * granule, where));
  return made;
}

base::status mapped_memory::map_in(uint64_t bytes, const place& where) {
  range_ = where.range;
  address_ = range_->address() + where.offset;
  MORI_CHECK(gpu_->map(address_, bytes, memory_));
  mapped_bytes_ = bytes;
  return {};
}

base::result<mapped_memory> mapped_memory::create(std::shared_ptr<gpu> on, uint64_t bytes,
                                                  uint64_t alignment) {
  mapped_memory made;
  made.gpu_ = std::move(on);
  MORI_TRY(const uint64_t granule, made.gpu_->granule_bytes());
  const uint64_t rounded = (bytes + granule - 1) / granule * granule;
  MORI_TRY(made.memory_, made.gpu_->create_memory(rounded));
  MORI_CHECK(made.map_at(rounded, alignment));
  MORI_CHECK(made.gpu_->fill_now(made.address_, 0, rounded));
  return made;
}

base::result<mapped_memory> mapped_memory::import(std::shared_ptr<gpu> on, int descriptor,
                                                  uint64_t bytes, uint64_t alignment) {
  mapped_memory made;
  made.gpu_ = std::move(on);
  MORI_TRY(const uint64_t granule, made.gpu_->granule_bytes());
  MORI_TRY(made.memory_, made.gpu_->import_memory(descriptor));
  MORI_CHECK(made.map_at((bytes + granule - 1) / granule * granule, alignment));
  return made;
}

base::status mapped_memory::map_at(uint64_t bytes, uint64_t alignment) {
  MORI_TRY(address_, gpu_->reserve_addresses(bytes, alignment));
  reserved_bytes_ = bytes;
  MORI_CHECK(gpu_->map(address_, bytes, memory_));
  mapped_bytes_ = bytes;
  return {};
}

mapped_memory::~mapped_memory() {
  if (gpu_ == nullptr) return;
  if (mapped_bytes_ != 0) gpu_->unmap(address_, mapped_bytes_);
  if (reserved_bytes_ != 0) gpu_->release_addresses(address_, reserved_bytes_);
  if (memory_ != 0) gpu_->release_memory(memory_);
}

void mapped_memory::swap(mapped_memory& other) noexcept {
  gpu_.swap(other.gpu_);
  std::swap(memory_, other.memory_);
  std::swap(address_, other.address_);
  std::swap(reserved_bytes_, other.reserved_bytes_);
  range_.swap(other.range_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
}

base::result<own_stream> own_stream::create(std::shared_ptr<gpu> on) {
  own_stream made;
  MORI_TRY(made.stream_, on->create_stream());
  made.gpu_ = std::move(on);
  return made;
}

}  // namespace mori::device
