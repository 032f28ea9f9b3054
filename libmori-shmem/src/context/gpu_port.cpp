// gpu_port.cpp - see gpu_port.hpp.
#include "context/gpu_port.hpp"

#include "../kernels/apply.hpp"
#include "network/record.hpp"

#include <cstring>

MORI_KERNEL_DECLARE(mori_shmem_apply);

namespace mori::shmem_core {
namespace {

constexpr uint64_t largest_entry_count = 1024;
constexpr uint64_t entry_bytes = largest_entry_count * sizeof(apply_entry);
// Several chunks are on their way to the device at once.
constexpr uint64_t staging_bytes = 8 * largest_chunk_bytes;
constexpr uint64_t staging_alignment = 64;

}  // namespace

base::result<std::unique_ptr<gpu_port>> gpu_port::create(std::shared_ptr<device::gpu> gpu,
                                                         device::runtime& kernels) {
  std::unique_ptr<gpu_port> made(new gpu_port(std::move(gpu), kernels));
  MORI_TRY(made->stream_, made->gpu_->helper_stream(device::gpu::helper::work));
  MORI_TRY(made->memory_, device::pinned_buffer::allocate(
                              made->gpu_, entry_bytes + staging_bytes + largest_chunk_bytes));
  return made;
}

apply_entry* gpu_port::entries() const { return reinterpret_cast<apply_entry*>(memory_.data()); }
std::byte* gpu_port::staging() const { return memory_.data() + entry_bytes; }
std::byte* gpu_port::incoming() const { return staging() + staging_bytes; }

base::status gpu_port::launch() {
  if (launched_count_ == befores_.size()) return {};
  apply_args args{};
  args.entries = device::address_of(entries() + launched_count_);
  args.count = befores_.size() - launched_count_;
  device::launch_options with;
  with.wave_count = 1;
  with.stream = stream_;
  launched_count_ = befores_.size();
  is_dirty_ = true;
  MORI_TRY([[maybe_unused]] const uint32_t blocks,
           kernels_.launch(MORI_KERNEL_HANDLE(mori_shmem_apply), with, args));
  return {};
}

base::status gpu_port::write(uint64_t address, link::byte_span bytes) {
  if (bytes.empty()) return {};
  MORI_CHECK(launch());
  if (staged_bytes_ + bytes.size() > staging_bytes) MORI_CHECK(flush());
  std::byte* const from = staging() + staged_bytes_;
  std::memcpy(from, bytes.data(), bytes.size());
  staged_bytes_ += (bytes.size() + staging_alignment - 1) / staging_alignment * staging_alignment;
  is_dirty_ = true;
  return gpu_->copy(address, device::address_of(from), bytes.size(), stream_);
}

base::status gpu_port::change(const word_change& what) {
  if (what.operation == MORI_SHMEM_SIGNAL_SET)
    return write(what.address, std::as_bytes(std::span(&what.value, 1)));
  if (befores_.size() == largest_entry_count) MORI_CHECK(flush());
  entries()[befores_.size()] = {what.address,    what.value,    what.compare, 0,
                                what.word_bytes, what.operation};
  befores_.push_back(what.before);
  return {};
}

base::status gpu_port::flush() {
  MORI_CHECK(launch());
  if (!is_dirty_) return {};
  MORI_CHECK(gpu_->synchronize_stream(stream_));
  for (size_t i = 0; i < befores_.size(); ++i)
    if (befores_[i] != nullptr) *befores_[i] = entries()[i].before;
  befores_.clear();
  launched_count_ = 0;
  staged_bytes_ = 0;
  is_dirty_ = false;
  return {};
}

base::result<link::byte_span> gpu_port::read(uint64_t address, uint64_t bytes) {
  if (bytes > largest_chunk_bytes)
    return base::fail(MORI_E_INTERNAL, "{} bytes asked for at once, the limit is {}", bytes,
                      largest_chunk_bytes);
  MORI_CHECK(flush());
  MORI_CHECK(gpu_->copy(device::address_of(incoming()), address, bytes, stream_));
  MORI_CHECK(gpu_->synchronize_stream(stream_));
  return link::byte_span(incoming(), bytes);
}

}  // namespace mori::shmem_core
