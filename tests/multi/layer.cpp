// layer.cpp - see layer.hpp.
#include "layer.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "gate.hpp"

namespace multi {
namespace {

constexpr int top_k = 4;
constexpr int experts_per_pe = 2;
constexpr uint64_t pattern_period = 251;

size_t whole_pages(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

uint64_t mix(uint64_t x) {
  x = (x ^ x >> 33) * 0xFF51'AFD7'ED55'8CCDu;
  x = (x ^ x >> 33) * 0xC4CE'B9FE'1A85'EC53u;
  return x ^ x >> 33;
}

}  // namespace

layer::~layer() { destroy(); }

mori_status layer::create(mori_shmem* shmem, const layer_shape& shape, mori_error* error) {
  shmem_ = shmem;
  shape_ = shape;
  mori_ep_config config{};
  config.struct_size = sizeof config;
  config.hidden_dim = shape.hidden;
  config.max_input_token_count = shape.max_token_count;
  config.expert_per_rank_count = experts_per_pe;
  config.expert_per_token_count = top_k;
  config.max_total_recv_token_count = shape.receive_cap;
  mori_ep_memory memory{};
  memory.struct_size = sizeof memory;
  if (const auto status = mori_ep_memory_query(&config, shape.pe_count, &memory, error);
      status != MORI_OK)
    return status;
  capacity_ = memory.recv_token_capacity_count;
  if (const auto status = mori_ep_create(shmem, &config, &ep_, error); status != MORI_OK)
    return status;
  if (!map_arrays()) return MORI_E_OS;
  set_tokens(std::vector<uint64_t>(static_cast<size_t>(shape.pe_count), shape.max_token_count), -1);
  return MORI_OK;
}

// A named file, so that these pages can be told from the library's in /proc/self/smaps.
bool layer::map_arrays() {
  const size_t index_bytes = whole_pages(shape_.max_token_count * top_k * sizeof(int32_t));
  const size_t input_bytes = whole_pages(shape_.max_token_count * shape_.hidden * sizeof(float));
  const size_t row_bytes = whole_pages(capacity_ * shape_.hidden * sizeof(float));
  array_bytes_ = index_bytes + input_bytes + row_bytes;
  const int fd = memfd_create("test-arrays", MFD_CLOEXEC);
  if (fd < 0) return false;
  const bool sized = ftruncate(fd, static_cast<off_t>(array_bytes_)) == 0;
  void* at =
      sized ? mmap(nullptr, array_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  close(fd);
  if (at == MAP_FAILED) return false;
  arrays_ = static_cast<std::byte*>(at);
  indices_ = reinterpret_cast<int32_t*>(arrays_);
  input_ = reinterpret_cast<float*>(arrays_ + index_bytes);
  rows_ = reinterpret_cast<float*>(arrays_ + index_bytes + input_bytes);
  pattern_.resize(shape_.hidden + pattern_period);
  for (size_t i = 0; i < pattern_.size(); ++i) pattern_[i] = static_cast<float>(i % pattern_period);
  return true;
}

void layer::destroy() {
  mori_ep_destroy(ep_);
  ep_ = nullptr;
  if (arrays_ != nullptr) munmap(arrays_, array_bytes_);
  arrays_ = nullptr;
  pattern_ = {};
  received_ = {};
  stop_at_ = place::none;
  wrong_count_ = 0;
}

void layer::set_tokens(const std::vector<uint64_t>& token_counts, int target) {
  token_counts_ = token_counts;
  target_ = target;
  fill_own_tokens();
}

void layer::fill_own_tokens() {
  for (uint64_t token = 0; token < token_counts_[static_cast<size_t>(shape_.pe)]; ++token) {
    for (int slot = 0; slot < top_k; ++slot)
      indices_[token * top_k + static_cast<uint64_t>(slot)] = expert_of(shape_.pe, token, slot);
    std::memcpy(input_ + token * shape_.hidden, pattern_of(shape_.pe, token),
                shape_.hidden * sizeof(float));
  }
}

int32_t layer::expert_of(int pe, uint64_t token, int slot) const {
  if (target_ >= 0) return target_ * experts_per_pe + slot % experts_per_pe;
  const uint64_t chosen =
      mix(static_cast<uint64_t>(pe) << 40 | token << 8 | static_cast<uint64_t>(slot));
  if (slot == top_k - 1 && chosen % 7 == 0) return -1;
  return static_cast<int32_t>(chosen % static_cast<uint64_t>(shape_.pe_count * experts_per_pe));
}

bool layer::goes_to(int pe, uint64_t token, int destination) const {
  for (int slot = 0; slot < top_k; ++slot) {
    const int32_t id = expert_of(pe, token, slot);
    if (id >= 0 && id / experts_per_pe == destination) return true;
  }
  return false;
}

const float* layer::pattern_of(int pe, uint64_t token) const {
  return pattern_.data() + (static_cast<uint64_t>(pe) * 37 + token * 5) % pattern_period;
}

void* layer::peer_rows(int peer) const {
  void* rows = nullptr;
  return mori_shmem_ptr_p2p(shmem_, received_.out, peer, &rows, nullptr) == MORI_OK ? rows
                                                                                    : nullptr;
}

void layer::close_dispatch_gate() {
  const uint64_t token_bytes = shape_.hidden * sizeof(float);
  const int next = (shape_.pe + 1) % shape_.pe_count;
  if (stop_at_ == place::routing) close_gate(indices_, 4096);
  if (stop_at_ == place::first_row) close_gate(input_, 4096);
  if (stop_at_ == place::middle_row)
    close_gate(input_ + shape_.max_token_count / 2 * shape_.hidden, token_bytes);
  // Known from an earlier dispatch.
  if (stop_at_ == place::receiver && received_.out != nullptr)
    close_gate(peer_rows(next), capacity_ * token_bytes);
}

mori_status layer::dispatch(mori_error* error) {
  mori_ep_dispatch_args args{};
  args.struct_size = sizeof args;
  args.token_count = token_counts_[static_cast<size_t>(shape_.pe)];
  args.input = input_;
  args.indices = indices_;
  args.dtype = MORI_EP_F32;
  mori_ep_dispatch_result result{};
  result.struct_size = sizeof result;
  close_dispatch_gate();
  control().phase.store(1);
  const mori_status status = mori_ep_dispatch(ep_, &args, &result, error);
  control().phase.store(2);
  remove_gate();
  if (status != MORI_OK) return status;
  received_ = result;
  return check_received(error);
}

// Every row that must be here is, in order of (source, token), and no other.
mori_status layer::check_received(mori_error* error) {
  std::vector<int32_t> positions(received_.recv_token_count);
  uint64_t count = 0;
  const mori_status status =
      mori_ep_src_token_positions(ep_, positions.data(), positions.size(), &count, error);
  if (status != MORI_OK) return status;  // somebody died just now
  if (count != positions.size()) {
    ++wrong_count_;
    return MORI_OK;
  }
  const auto* out = static_cast<const float*>(received_.out);
  const uint64_t stride = static_cast<uint64_t>(shape_.pe_count) * shape_.max_token_count;
  uint64_t row = 0;
  for (int source = 0; source < shape_.pe_count; ++source) {
    for (uint64_t token = 0; token < token_counts_[static_cast<size_t>(source)]; ++token) {
      if (!goes_to(source, token, shape_.pe)) continue;
      const bool right =
          row < count &&
          positions[row] == static_cast<int32_t>(static_cast<uint64_t>(source) * stride + token) &&
          std::memcmp(out + row * shape_.hidden, pattern_of(source, token),
                      shape_.hidden * sizeof(float)) == 0;
      wrong_count_ += right ? 0 : 1;
      ++row;
    }
  }
  wrong_count_ += row == count ? 0 : 1;
  // The experts of this PE multiply by its number plus one.
  for (uint64_t i = 0; i < count * shape_.hidden; ++i)
    rows_[i] = out[i] * static_cast<float>(shape_.pe + 1);
  return MORI_OK;
}

void layer::close_combine_gate() {
  const uint64_t token_bytes = shape_.hidden * sizeof(float);
  const int next = (shape_.pe + 1) % shape_.pe_count;
  if (stop_at_ == place::expert_rows)
    close_gate(rows_ + received_.recv_token_count / 2 * shape_.hidden, token_bytes);
  if (stop_at_ == place::routing_again) close_gate(indices_, 4096);
  if (stop_at_ == place::gather) close_gate(peer_rows(next), capacity_ * token_bytes);
}

mori_status layer::combine(mori_error* error) {
  mori_ep_combine_args args{};
  args.struct_size = sizeof args;
  args.input = rows_;
  args.indices = indices_;
  args.token_count = token_counts_[static_cast<size_t>(shape_.pe)];
  args.input_row_count = received_.recv_token_count;
  args.dtype = MORI_EP_F32;
  mori_ep_combine_result result{};
  result.struct_size = sizeof result;
  close_combine_gate();
  control().phase.store(3);
  const mori_status status = mori_ep_combine(ep_, &args, &result, error);
  control().phase.store(0);
  remove_gate();
  if (status == MORI_OK) check_combined(static_cast<const float*>(result.out));
  return status;
}

void layer::check_combined(const float* out) {
  for (uint64_t token = 0; token < token_counts_[static_cast<size_t>(shape_.pe)]; ++token) {
    int factor = 0;
    for (int destination = 0; destination < shape_.pe_count; ++destination)
      if (goes_to(shape_.pe, token, destination)) factor += destination + 1;
    const float* sent = pattern_of(shape_.pe, token);
    bool right = true;
    for (uint64_t column = 0; column < shape_.hidden; ++column)
      right =
          right && out[token * shape_.hidden + column] == sent[column] * static_cast<float>(factor);
    wrong_count_ += right ? 0 : 1;
  }
}

}  // namespace multi
