// gpu_import.cpp - how a process gets at GPU memory of another; see gpu_share.hpp.
#include "local/gpu_share.hpp"

#include <mori/device/runtime.hpp>

namespace mori::io_core::local {
namespace {

base::status compare_nonce(device::gpu& on, uint64_t at, const std::array<uint8_t, 16>& nonce) {
  std::array<uint8_t, 16> seen{};
  MORI_CHECK(on.copy_now(device::address_of(seen.data()), at, seen.size()));
  if (seen == nonce) return {};
  return base::fail(MORI_E_UNAVAILABLE,
                    "the nonce read from the device's memory is not the owner's");
}

}  // namespace

class gpu_importer::own_memory final : public gpu_import {
 public:
  explicit own_memory(uint64_t address) : address_(address) {}
  uint64_t address() const override { return address_; }
  std::string text() const override { return "GPU memory of this process"; }

 private:
  const uint64_t address_;
};

// Allocations of other processes that are open here. A driver opens each once, so regions share
// one; the last that uses it closes it, under the lock, before anybody can open it again.
class gpu_importer::handles {
 public:
  using key = std::pair<std::shared_ptr<device::gpu>, device::ipc_handle>;

  base::result<uint64_t> take(const key& what) {
    const std::lock_guard guard(lock_);
    if (const auto found = open_.find(what); found != open_.end()) {
      ++found->second.users;
      return found->second.address;
    }
    MORI_TRY(const uint64_t address, what.first->import_ipc(what.second));
    open_[what] = {address, 1};
    return address;
  }
  void give_back(const key& what) {
    const std::lock_guard guard(lock_);
    const auto found = open_.find(what);
    if (--found->second.users != 0) return;
    what.first->close_ipc(found->second.address);
    open_.erase(found);
  }

 private:
  struct entry {
    uint64_t address = 0;
    uint64_t users = 0;
  };
  std::mutex lock_;
  std::map<key, entry> open_;
};

class gpu_importer::by_handle final : public gpu_import {
 public:
  static base::result<std::shared_ptr<by_handle>> make(std::shared_ptr<handles> all,
                                                       const handles::key& what, uint64_t offset) {
    MORI_TRY(const uint64_t start, all->take(what));
    return std::shared_ptr<by_handle>(new by_handle(std::move(all), what, start + offset));
  }
  by_handle(const by_handle&) = delete;
  by_handle& operator=(const by_handle&) = delete;
  ~by_handle() override { all_->give_back(what_); }
  uint64_t address() const override { return address_; }
  std::string text() const override { return "GPU memory by handle"; }

 private:
  by_handle(std::shared_ptr<handles> all, handles::key what, uint64_t address)
      : all_(std::move(all)), what_(std::move(what)), address_(address) {}
  std::shared_ptr<handles> all_;  // shared with the importer and other regions
  const handles::key what_;
  const uint64_t address_;
};

// Parts mapped one behind the other, as they are in the owner's process.
class gpu_importer::by_descriptors final : public gpu_import {
 public:
  static base::result<std::shared_ptr<by_descriptors>> make(const gpu_offer& offer,
                                                            std::shared_ptr<device::gpu> on,
                                                            base::deadline until) {
    std::shared_ptr<by_descriptors> made(new by_descriptors(std::move(on), offer.offset));
    MORI_TRY(share_visit visit, share_visit::start(offer.from, until));
    MORI_CHECK(made->prove(offer, visit, until));
    MORI_TRY(const uint64_t granule, made->on_->granule_bytes());
    if (offer.shared_bytes % granule != 0)
      return base::fail(MORI_E_UNAVAILABLE, "{} bytes of GPU memory are no multiple of {}",
                        offer.shared_bytes, granule);
    MORI_TRY(made->start_, made->on_->reserve_addresses(offer.shared_bytes, granule));
    made->reserved_bytes_ = offer.shared_bytes;
    for (uint32_t index = 0; index < offer.part_count; ++index)
      MORI_CHECK(made->map_part(visit, index, until));
    if (made->mapped_bytes_ != offer.shared_bytes)
      return base::fail(MORI_E_PROTOCOL, "parts of {} bytes, {} were offered", made->mapped_bytes_,
                        offer.shared_bytes);
    return made;
  }
  ~by_descriptors() override {
    uint64_t at = start_;
    for (const auto& [memory, bytes] : parts_) {
      on_->unmap(at, bytes);
      on_->release_memory(memory);
      at += bytes;
    }
    if (reserved_bytes_ != 0) on_->release_addresses(start_, reserved_bytes_);
  }
  uint64_t address() const override { return start_ + offset_; }
  std::string text() const override { return "GPU memory by descriptor"; }

 private:
  by_descriptors(std::shared_ptr<device::gpu> on, uint64_t offset)
      : on_(std::move(on)), offset_(offset) {}

  static base::result<uint64_t> size_of(const link::handed& part) {
    link::byte_reader in(part.bytes);
    const uint64_t bytes = in.u64();
    if (!in.complete() || bytes == 0 || !part.fd)
      return base::fail(MORI_E_PROTOCOL, "a part of GPU memory without size or descriptor");
    return bytes;
  }

  base::status prove(const gpu_offer& offer, share_visit& visit, base::deadline until) const {
    MORI_TRY(const link::handed proof, visit.ask(offer.part_count, until));
    MORI_TRY(const uint64_t bytes, size_of(proof));
    MORI_TRY(const auto mapped, device::mapped_memory::import(on_, proof.fd.get(), bytes, 1));
    return compare_nonce(*on_, mapped.address(), offer.nonce);
  }

  base::status map_part(share_visit& visit, uint32_t index, base::deadline until) {
    MORI_TRY(const link::handed part, visit.ask(index, until));
    MORI_TRY(const uint64_t bytes, size_of(part));
    if (bytes > reserved_bytes_ - mapped_bytes_)
      return base::fail(MORI_E_PROTOCOL, "a part of {} bytes, {} are left", bytes,
                        reserved_bytes_ - mapped_bytes_);
    MORI_TRY(const uint64_t memory, on_->import_memory(part.fd.get()));
    if (auto mapped = on_->map(start_ + mapped_bytes_, bytes, memory); !mapped) {
      on_->release_memory(memory);
      return mapped;
    }
    parts_.emplace_back(memory, bytes);
    mapped_bytes_ += bytes;
    return {};
  }

  std::shared_ptr<device::gpu> on_;
  const uint64_t offset_;
  uint64_t start_ = 0;
  uint64_t reserved_bytes_ = 0;
  uint64_t mapped_bytes_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> parts_;  // memory, bytes
};

gpu_importer::gpu_importer() : handles_(std::make_shared<handles>()) {}

base::status gpu_importer::prove_handle(const gpu_offer& offer,
                                        const std::shared_ptr<device::gpu>& on) {
  {
    const std::lock_guard guard(lock_);
    if (proven_.contains({on.get(), offer.nonce})) return {};
  }
  MORI_TRY(const auto proof, by_handle::make(handles_, {on, offer.proof_handle}, 0));
  MORI_CHECK(compare_nonce(*on, proof->address(), offer.nonce));
  const std::lock_guard guard(lock_);
  proven_.insert({on.get(), offer.nonce});
  return {};
}

base::result<std::shared_ptr<gpu_import>> gpu_importer::get(const gpu_offer& offer,
                                                            const std::shared_ptr<device::gpu>& on,
                                                            base::deadline until) {
  if (offer.backend != on->facts().backend)
    return base::fail(MORI_E_UNAVAILABLE, "memory of an {} device, this one is {}",
                      device::backend_name(offer.backend),
                      device::backend_name(on->facts().backend));
  if (offer.way == gpu_way::handle) MORI_CHECK(check_lease(offer.from, until));
  MORI_TRY(const process_card own, own_process());
  if (own.nonce == offer.process) {
    // A process cannot import its own memory, and need not.
    MORI_CHECK(on->enable_peer(offer.ordinal));
    return std::shared_ptr<gpu_import>(std::make_shared<own_memory>(offer.address));
  }
  if (offer.way == gpu_way::descriptors) {
    MORI_TRY(auto made, by_descriptors::make(offer, on, until));
    return std::shared_ptr<gpu_import>(std::move(made));
  }
  MORI_CHECK(prove_handle(offer, on));
  MORI_TRY(auto made, by_handle::make(handles_, {on, offer.handle}, offer.offset));
  return std::shared_ptr<gpu_import>(std::move(made));
}

}  // namespace mori::io_core::local
