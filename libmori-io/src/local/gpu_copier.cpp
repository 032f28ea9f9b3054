// gpu_copier.cpp - see gpu_copier.hpp.
#include "local/gpu_copier.hpp"

#include <mori/base/log.hpp>

#include <algorithm>

MORI_KERNEL_DECLARE(mori_io_copy_pieces);

namespace mori::io_core::local {
namespace {

constexpr uint32_t waves_of_block = 8;

size_t entries_of(uint64_t bytes) {
  return static_cast<size_t>((bytes + gpu_copier::entry_bytes - 1) / gpu_copier::entry_bytes);
}
bool is_small(const copy_entry& each) {
  return each.bytes != 0 && each.bytes <= gpu_copier::small_bytes;
}

}  // namespace

base::result<std::shared_ptr<gpu_copier>> gpu_copier::create(
    std::shared_ptr<device::gpu> on, const gpu_copier_options& options,
    std::span<const device::device_image> images) {
  if (options.stream_count == 0 || options.event_count == 0)
    return base::fail(MORI_E_INVALID, "{} streams and {} events, at least 1 of each is needed",
                      options.stream_count, options.event_count);
  std::shared_ptr<gpu_copier> made(new gpu_copier(std::move(on), options));
  MORI_CHECK(made->make(images));
  return made;
}

// Streams and events are made here; tables with the first kernel that needs one, since that may
// never be.
base::status gpu_copier::make(std::span<const device::device_image> images) {
  const device::kernel kernel = MORI_KERNEL_HANDLE(mori_io_copy_pieces);
  auto kernels = device::runtime::create(
      {.backend = gpu_->facts().backend, .gpu = gpu_, .images = images, .kernels = {&kernel, 1}});
  if (kernels)
    kernels_ = std::move(*kernels);
  else if (kernels.error().status == MORI_E_UNAVAILABLE)
    no_kernel_ = kernels.error().text;
  else
    return std::move(kernels.error());
  for (uint32_t i = 0; i < std::min(options_.stream_count, options_.event_count); ++i) {
    MORI_TRY(void* const stream, gpu_->create_stream());
    streams_.push_back(stream);
  }
  slots_.resize(options_.event_count);
  for (uint32_t i = 0; i < options_.event_count; ++i) {
    MORI_TRY(slots_[i].event, gpu_->create_event());
    slots_[i].stream = streams_[i % streams_.size()];
  }
  for (uint32_t i = options_.event_count; i > 0; --i) free_.push_back(i - 1);
  return {};
}

gpu_copier::~gpu_copier() {
  for (void* const stream : streams_) {
    (void)gpu_->synchronize_stream(stream);
    gpu_->destroy_stream(stream);
  }
  for (slot& each : slots_)
    if (each.event != nullptr) gpu_->destroy_event(each.event);
}

uint32_t gpu_copier::take_slot() {
  const std::lock_guard guard(lock_);
  if (free_.empty()) return UINT32_MAX;
  const uint32_t which = free_.front();
  // The one that was given back longest ago: neighbours in time are on different streams.
  free_.erase(free_.begin());
  return which;
}

void gpu_copier::give_slot(uint32_t which) {
  const std::lock_guard guard(lock_);
  free_.push_back(which);
}

gpu_copier::plan gpu_copier::make_plan(std::span<const copy_entry> pieces) const {
  plan made;
  for (const copy_entry& each : pieces) {
    const size_t entries = is_small(each) ? entries_of(each.bytes) : 0;
    // Large ones count too, so that a flight ends some time.
    if (made.entries + entries > table_entries || made.pieces >= table_entries) break;
    made.entries += entries;
    made.small += is_small(each) ? 1 : 0;
    ++made.pieces;
  }
  if (kernels_ == nullptr || made.small < fewest_for_kernel) made.small = 0;
  return made;
}

base::result<size_t> gpu_copier::start(std::span<const copy_entry> pieces, flight& made) {
  const plan how = make_plan(pieces);
  if (how.pieces == 0) return size_t{0};
  const uint32_t which = take_slot();
  if (which == UINT32_MAX) return size_t{0};
  slot& on = slots_[which];
  made.slot = which;
  auto outcome = enqueue(on, pieces.first(how.pieces), how);
  if (outcome) outcome = gpu_->record_event(on.event, on.stream);
  if (!outcome) {
    (void)gpu_->synchronize_stream(on.stream);  // what was enqueued before it failed
    MORI_CHECK(end(made, std::move(outcome)));
  }
  return how.pieces;
}

base::status gpu_copier::enqueue(slot& on, std::span<const copy_entry> pieces, const plan& how) {
  if (how.small != 0) MORI_CHECK(launch(on, pieces, how.entries));
  for (size_t i = 0; i < pieces.size(); ++i) {
    copy_entry whole = pieces[i];
    if (how.small != 0 && is_small(whole)) continue;
    // Those that follow each other on both sides are one.
    while (i + 1 < pieces.size() && pieces[i + 1].to == whole.to + whole.bytes &&
           pieces[i + 1].from == whole.from + whole.bytes &&
           !(how.small != 0 && is_small(pieces[i + 1])))
      whole.bytes += pieces[++i].bytes;
    MORI_CHECK(gpu_->copy(whole.to, whole.from, whole.bytes, on.stream));
  }
  return {};
}

base::status gpu_copier::launch(slot& on, std::span<const copy_entry> pieces, size_t entries) {
  if (on.table.data() == nullptr) {
    MORI_TRY(on.table, device::pinned_buffer::allocate(gpu_, table_entries * sizeof(copy_entry)));
  }
  auto* const table = reinterpret_cast<copy_entry*>(on.table.data());
  size_t used = 0;
  for (const copy_entry& each : pieces) {
    if (!is_small(each)) continue;
    for (uint64_t at = 0; at < each.bytes; at += entry_bytes)
      table[used++] = {each.to + at, each.from + at, std::min(entry_bytes, each.bytes - at)};
  }
  const copy_pieces_args args{device::address_of(table), entries};
  const auto blocks = static_cast<uint32_t>((entries + waves_of_block - 1) / waves_of_block);
  MORI_TRY([[maybe_unused]] const uint32_t made,
           kernels_->launch(MORI_KERNEL_HANDLE(mori_io_copy_pieces),
                            {.block_count = std::min(blocks, most_blocks),
                             .wave_count = waves_of_block,
                             .stream = on.stream},
                            args));
  ++launch_count_;
  return {};
}

base::status gpu_copier::end(flight& which, base::status outcome) {
  give_slot(which.slot);
  which = {};
  return outcome;
}

base::result<bool> gpu_copier::is_over(flight& which) {
  if (which.is_empty()) return true;
  const auto reached = gpu_->is_reached(slots_[which.slot].event);
  if (reached && !*reached) return false;
  if (!reached) {
    (void)gpu_->synchronize_stream(slots_[which.slot].stream);
    MORI_CHECK(end(which, reached.error()));
  }
  MORI_CHECK(end(which, {}));
  return true;
}

base::status gpu_copier::wait(flight& which) {
  if (which.is_empty()) return {};
  auto outcome = gpu_->synchronize_event(slots_[which.slot].event);
  if (!outcome) (void)gpu_->synchronize_stream(slots_[which.slot].stream);
  return end(which, std::move(outcome));
}

}  // namespace mori::io_core::local
