// mapping.cpp - see mapping.hpp.
#include "local/mapping.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace mori::io_core::local {
namespace {

constexpr uint8_t offer_format = 1;

}  // namespace

link::byte_vector encode(const segment_offer& what) {
  link::byte_writer out;
  out.u8(offer_format);
  out.u8(what.writable ? 1 : 0);
  write(out, what.from);
  out.u64(what.serial);
  out.u64(what.file_bytes);
  out.u64(what.offset);
  out.raw(std::as_bytes(std::span(what.nonce)));
  return out.take();
}

base::result<segment_offer> decode_segment_offer(link::byte_span bytes) {
  link::byte_reader in(bytes);
  const uint8_t format = in.u8();
  segment_offer made;
  made.writable = in.u8() != 0;
  made.from = read_invitation(in);
  made.serial = in.u64();
  made.file_bytes = in.u64();
  made.offset = in.u64();
  const link::byte_span nonce = in.raw(made.nonce.size());
  if (format != offer_format)
    return base::fail(MORI_E_VERSION, "a segment offered in format {}, known is {}", format,
                      offer_format);
  if (!in.complete() || made.file_bytes < segment_pool::nonce_bytes ||
      made.offset > made.file_bytes - segment_pool::nonce_bytes)
    return base::fail(MORI_E_PROTOCOL, "a segment's offer of {} bytes makes no sense",
                      bytes.size());
  std::memcpy(made.nonce.data(), nonce.data(), nonce.size());
  return made;
}

std::optional<segment_offer> offer_segment(share_desk& desk, const void* address, uint64_t bytes,
                                           bool writable) {
  const auto place = segment_pool::of_process().find(address, bytes);
  if (!place) return {};
  segment_offer made;
  made.from =
      desk.offer([serial = place->serial, writable](uint32_t index) -> base::result<link::handed> {
        if (index != 0)
          return base::fail(MORI_E_INVALID, "part {} of a segment, it has one", index);
        MORI_TRY(base::unique_fd fd, segment_pool::of_process().open(serial, writable));
        return link::handed{{}, std::move(fd)};
      });
  made.serial = place->serial;
  made.file_bytes = place->file_bytes;
  made.offset = place->offset;
  made.writable = writable;
  made.nonce = place->nonce;
  return made;
}

base::result<std::shared_ptr<mapping>> mapping::fetch(const segment_offer& offer,
                                                      base::deadline until) {
  MORI_TRY(share_visit visit, share_visit::start(offer.from, until));
  MORI_TRY(const link::handed got, visit.ask(0, until));
  if (!got.fd) return base::fail(MORI_E_OS, "no descriptor came along: out of descriptors?");
  struct stat about{};
  if (::fstat(got.fd.get(), &about) != 0) return base::fail_os(errno, "a segment's file");
  // What could become shorter while it is mapped would be a SIGBUS of this process.
  if (!link::segment::is_sealed(got.fd.get()) ||
      static_cast<uint64_t>(about.st_size) < offer.file_bytes)
    return base::fail(MORI_E_PROTOCOL, "a segment of {} bytes in a file of {}, {}sealed",
                      offer.file_bytes, about.st_size,
                      link::segment::is_sealed(got.fd.get()) ? "" : "not ");
  void* const at = ::mmap(nullptr, offer.file_bytes, PROT_READ | (offer.writable ? PROT_WRITE : 0),
                          MAP_SHARED | MAP_NORESERVE, got.fd.get(), 0);
  if (at == MAP_FAILED) return base::fail_os(errno, "cannot map {} bytes", offer.file_bytes);
  (void)::madvise(at, offer.file_bytes, MADV_HUGEPAGE);  // a wish
  std::shared_ptr<mapping> made(
      new mapping(static_cast<std::byte*>(at), offer.file_bytes, offer.writable));
  if (std::memcmp(made->data() + offer.file_bytes - segment_pool::nonce_bytes, offer.nonce.data(),
                  segment_pool::nonce_bytes) != 0)
    return base::fail(MORI_E_PROTOCOL, "the nonce read through the mapping is not the owner's");
  return made;
}

mapping::~mapping() { ::munmap(data_, bytes_); }

base::result<std::shared_ptr<mapping>> mapping_cache::get(const segment_offer& offer,
                                                          base::deadline until) {
  const key wanted{offer.from.desk.name, offer.serial, offer.writable};
  std::shared_ptr<mapping> known;
  {
    const std::lock_guard guard(lock_);
    std::erase_if(all_, [](const auto& each) { return each.second.expired(); });
    if (const auto found = all_.find(wanted); found != all_.end()) known = found->second.lock();
  }
  if (known != nullptr) {
    // Mapped for another region, perhaps: this one must be offered still.
    MORI_CHECK(check_lease(offer.from, until));
    return known;
  }
  // Fetching waits for another process: not under the lock. Two may fetch, one is kept.
  MORI_TRY(auto made, mapping::fetch(offer, until));
  const std::lock_guard guard(lock_);
  std::weak_ptr<mapping>& slot = all_[wanted];
  if (auto earlier = slot.lock()) return earlier;
  slot = made;
  return made;
}

void move_mapped(const work& what, position& at, uint64_t budget) {
  skip(what, at, 0);
  while (!is_over(what, at) && budget > 0) {
    const piece& each = what.pieces[at.piece];
    const uint64_t bytes = std::min(each.bytes - at.bytes, budget);
    std::byte* const here = what.local + each.local_offset + at.bytes;
    auto* const there = reinterpret_cast<std::byte*>(what.remote + each.remote_offset + at.bytes);
    // The two may be the same memory, of one process or mapped twice.
    std::memmove(what.is_read ? here : there, what.is_read ? there : here, bytes);
    skip(what, at, bytes);
    budget -= bytes;
  }
}

}  // namespace mori::io_core::local
