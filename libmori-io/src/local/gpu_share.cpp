// gpu_share.cpp - the owner's side of gpu_share.hpp; the other's is in gpu_import.cpp.
#include "local/gpu_share.hpp"

#include <algorithm>
#include <cstring>

namespace mori::io_core::local {
namespace {

constexpr uint8_t offer_format = 1;
constexpr uint64_t proof_bytes = 4096;

template <size_t Size>
void write_array(link::byte_writer& out, const std::array<uint8_t, Size>& from) {
  out.raw(std::as_bytes(std::span(from)));
}
template <size_t Size>
void read_array(link::byte_reader& in, std::array<uint8_t, Size>& to) {
  const link::byte_span bytes = in.raw(Size);
  if (bytes.size() == Size) std::memcpy(to.data(), bytes.data(), Size);
}

// One mapping of virtual memory within a region.
struct part {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

base::result<std::vector<part>> parts_of(device::gpu& on, uint64_t address, uint64_t bytes) {
  std::vector<part> made;
  const uint64_t end = address + bytes;
  for (uint64_t at = address; at < end;) {
    MORI_TRY(const auto found, on.allocation_at(at));
    if (found.bytes == 0 || found.address > at || found.address + found.bytes <= at)
      return base::fail(MORI_E_OS, "the driver says that {:#x} lies in {} bytes at {:#x}", at,
                        found.bytes, found.address);
    if (made.size() == gpu_exporter::most_parts)
      return base::fail(MORI_E_UNAVAILABLE, "it has more than {} parts", made.size());
    made.push_back({found.address, found.bytes});
    at = found.address + found.bytes;
  }
  return made;
}

base::result<link::handed> hand_out(device::gpu& on, uint64_t address, uint64_t bytes) {
  MORI_TRY(const uint64_t memory, on.memory_at(address));
  auto fd = on.export_memory(memory);
  on.release_memory(memory);
  if (!fd) return std::move(fd.error());
  link::byte_writer out;
  out.u64(bytes);
  return link::handed{out.take(), std::move(*fd)};
}

}  // namespace

link::byte_vector encode(const gpu_offer& what) {
  link::byte_writer out;
  out.u8(offer_format);
  out.u8(static_cast<uint8_t>(what.way));
  out.i32(what.backend);
  write_array(out, what.device);
  write_array(out, what.process);
  out.i32(what.ordinal);
  out.u64(what.address);
  out.u64(what.offset);
  out.u64(what.shared_bytes);
  write_array(out, what.nonce);
  write(out, what.from);
  if (what.way == gpu_way::handle) {
    write_array(out, what.handle);
    write_array(out, what.proof_handle);
  } else {
    out.u32(what.part_count);
  }
  return out.take();
}

base::result<gpu_offer> decode_gpu_offer(link::byte_span bytes) {
  link::byte_reader in(bytes);
  const uint8_t format = in.u8(), way = in.u8();
  gpu_offer made;
  made.backend = in.i32();
  read_array(in, made.device);
  read_array(in, made.process);
  made.ordinal = in.i32();
  made.address = in.u64();
  made.offset = in.u64();
  made.shared_bytes = in.u64();
  read_array(in, made.nonce);
  made.from = read_invitation(in);
  made.way = static_cast<gpu_way>(way);
  if (made.way == gpu_way::handle) {
    read_array(in, made.handle);
    read_array(in, made.proof_handle);
  } else if (made.way == gpu_way::descriptors) {
    made.part_count = in.u32();
  }
  if (format != offer_format)
    return base::fail(MORI_E_VERSION, "GPU memory offered in format {}, known is {}", format,
                      offer_format);
  const bool is_known =
      made.way == gpu_way::handle || (made.way == gpu_way::descriptors && made.part_count > 0 &&
                                      made.part_count <= gpu_exporter::most_parts);
  if (!in.complete() || !is_known || made.offset >= made.shared_bytes)
    return base::fail(MORI_E_PROTOCOL, "an offer of GPU memory of {} bytes makes no sense",
                      bytes.size());
  return made;
}

base::result<std::shared_ptr<gpu_exporter::proof>> gpu_exporter::proof_of(
    const std::shared_ptr<device::gpu>& on, gpu_way way) {
  const std::lock_guard guard(lock_);
  std::shared_ptr<proof>& slot = proofs_[{on.get(), way}];
  if (slot != nullptr) return slot;
  auto made = std::make_shared<proof>();
  wire::random_bytes(made->nonce);
  uint64_t address = 0;
  if (way == gpu_way::handle) {
    MORI_TRY(made->plain, device::device_buffer::allocate(on, proof_bytes));
    address = made->plain.address();
    MORI_TRY(made->handle, on->export_ipc(address));
  } else {
    MORI_TRY(made->mapped, device::mapped_memory::create(on, proof_bytes, 1));
    address = made->mapped.address();
  }
  MORI_CHECK(on->copy_now(address, device::address_of(made->nonce.data()), made->nonce.size()));
  slot = std::move(made);
  return slot;
}

base::result<gpu_offer> gpu_exporter::offer(share_desk& desk,
                                            const std::shared_ptr<device::gpu>& on,
                                            uint64_t address, uint64_t bytes) {
  gpu_offer made;
  made.backend = on->facts().backend;
  made.device = on->facts().uuid;
  made.ordinal = on->facts().ordinal;
  made.address = address;
  MORI_TRY(const process_card own, own_process());
  made.process = own.nonce;
  MORI_TRY(const auto whole, on->allocation_at(address));
  const bool is_inside = address >= whole.address && whole.bytes > address - whole.address &&
                         bytes <= whole.bytes - (address - whole.address);
  auto handle = is_inside ? on->export_ipc(whole.address)
                          : base::result<device::ipc_handle>(
                                base::fail(MORI_E_UNAVAILABLE, "it spans several allocations"));
  if (handle) {
    MORI_TRY(const auto proven, proof_of(on, gpu_way::handle));
    made.way = gpu_way::handle;
    made.handle = *handle;
    made.offset = address - whole.address;
    made.shared_bytes = whole.bytes;
    made.proof_handle = proven->handle;
    made.nonce = proven->nonce;
    made.from = desk.offer_lease();
    return made;
  }
  made.way = gpu_way::descriptors;
  if (const auto outcome = share_parts(desk, on, bytes, made); !outcome)
    return base::fail(
        MORI_E_UNAVAILABLE,
        "GPU memory at {:#x} cannot be shared with other processes: no handle ({}), no descriptor "
        "({}). Memory of PyTorch's expandable segments or of an asynchronous pool is like that: "
        "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False (PYTORCH_HIP_ALLOC_CONF for AMD)",
        address, handle.error().text, outcome.error().text);
  return made;
}

base::status gpu_exporter::share_parts(share_desk& desk, const std::shared_ptr<device::gpu>& on,
                                       uint64_t bytes, gpu_offer& made) {
  MORI_TRY(auto parts, parts_of(*on, made.address, bytes));
  // Whether it can be exported shows only when it is tried.
  MORI_TRY([[maybe_unused]] const link::handed first,
           hand_out(*on, parts.front().address, parts.front().bytes));
  MORI_TRY(const auto proven, proof_of(on, gpu_way::descriptors));
  made.part_count = static_cast<uint32_t>(parts.size());
  made.offset = made.address - parts.front().address;
  for (const part& each : parts) made.shared_bytes += each.bytes;
  made.nonce = proven->nonce;
  made.from = desk.offer([on, proven,
                          parts = std::move(parts)](uint32_t index) -> base::result<link::handed> {
    if (index < parts.size()) return hand_out(*on, parts[index].address, parts[index].bytes);
    if (index > parts.size())
      return base::fail(MORI_E_INVALID, "part {} of GPU memory, it has {}", index, parts.size());
    MORI_TRY(base::unique_fd fd, proven->mapped.export_descriptor());
    link::byte_writer out;
    out.u64(proof_bytes);
    return link::handed{out.take(), std::move(fd)};
  });
  return {};
}

}  // namespace mori::io_core::local
