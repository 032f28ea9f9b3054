// xgmi.cpp - the same-node backend: what it says of memory to peers, how it proves and
// opens theirs. Host memory of mori_io_alloc is mapped, any other attached, GPU memory
// imported; where one way fails the next is tried, and all reasons are told. How bytes
// then move: xgmi_path.cpp; the mechanisms: local/.
#include "transport/xgmi.hpp"

#include "transport/xgmi_path.hpp"

#include <mori/io_types.h>

#include <mori/base/log.hpp>

#include <algorithm>
#include <map>

namespace mori::io_core::transport {
namespace {

constexpr uint64_t staging_bytes = uint64_t{16} << 20;
// First byte of a blob that says why there is nothing to share; other blobs begin with a format.
constexpr uint8_t reason_follows = 0;

wire::desc_blob blob_of(wire::blob_kind kind, link::byte_span bytes) {
  wire::desc_blob made{kind, {}};
  std::ranges::transform(bytes, std::back_inserter(made.bytes),
                         [](std::byte b) { return static_cast<uint8_t>(b); });
  return made;
}
link::byte_span bytes_of(const wire::desc_blob& blob) {
  return std::as_bytes(std::span(blob.bytes));
}

wire::process_facts facts_of(const local::process_card& card) {
  return {card.pid,           card.start_time,    card.boot_id,
          card.pid_namespace, card.nonce_address, card.nonce};
}

uint64_t address_of(const std::byte* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

class xgmi final : public backend {
 public:
  xgmi(const xgmi_options& options, std::span<const device::device_image> images)
      : devices_({static_cast<uint32_t>(options.stream_count),
                  static_cast<uint32_t>(options.event_count)},
                 staging_bytes) {
    if (!images.empty()) devices_.use_images(images);
  }

  int32_t type() const override { return MORI_IO_BACKEND_XGMI; }
  const char* name() const override { return "XGMI"; }
  std::string facts() const override {
    return "same node: memory of mori_io_alloc mapped, other host memory attached, GPU memory "
           "imported";
  }

  base::status describe(const memory::region& what, std::vector<wire::desc_blob>& blobs) override;
  void withdraw(const memory::region& what) override;
  base::result<std::shared_ptr<path>> attach(const pair& between, base::deadline until) override;

  base::status start(job& what) override { return along(what).start(what); }
  base::result<job_state> advance(job& what, uint64_t budget_bytes) override {
    return along(what).advance(what, budget_bytes);
  }
  void cancel(job& what) override { along(what).cancel(what); }

 private:
  static xgmi_path& along(const job& what) { return *static_cast<xgmi_path*>(what.along); }

  base::result<local::share_desk*> desk();
  base::status describe_host(const memory::region& what, std::vector<wire::desc_blob>& blobs);
  base::status describe_gpu(const memory::region& what, std::vector<wire::desc_blob>& blobs);
  void note_offer(uint32_t region, uint64_t number);

  base::result<remote_host> open_host(const wire::memory_desc& remote, base::deadline until);
  base::result<remote_host> map_host(const wire::memory_desc& remote, base::deadline until);
  base::result<remote_host> attach_host(const wire::memory_desc& remote, base::deadline until);
  base::result<std::shared_ptr<path>> attach_gpu(const pair& between, base::deadline until);
  base::result<std::shared_ptr<path>> open_device_and_host(const pair& between,
                                                           base::deadline until);

  local::gpu_devices devices_;
  local::gpu_exporter exporter_;
  local::gpu_importer importer_;
  local::mapping_cache mappings_;

  std::mutex lock_;
  std::unique_ptr<local::share_desk> desk_;   // opened with the first offer
  std::multimap<uint32_t, uint64_t> offers_;  // by region
  std::map<std::array<uint8_t, 16>, std::weak_ptr<local::attachment>> attachments_;  // by nonce
};

base::result<local::share_desk*> xgmi::desk() {
  const std::lock_guard guard(lock_);
  if (desk_ == nullptr) {
    MORI_TRY(desk_, local::share_desk::open());
  }
  return desk_.get();
}

void xgmi::note_offer(uint32_t region, uint64_t number) {
  const std::lock_guard guard(lock_);
  offers_.emplace(region, number);
}

// What cannot be described is left out: the others' attach() then says what is missing.
base::status xgmi::describe(const memory::region& what, std::vector<wire::desc_blob>& blobs) {
  const auto outcome = what.location == MORI_IO_LOCATION_GPU ? describe_gpu(what, blobs)
                                                             : describe_host(what, blobs);
  if (outcome) return {};
  base::log(MORI_LOG_WARN, "region {} cannot be reached by XGMI: {}", what.id,
            outcome.error().text);
  link::byte_writer out;
  out.u8(reason_follows);
  out.raw(
      link::as_bytes(std::string_view(outcome.error().text).substr(0, wire::max_blob_bytes - 1)));
  blobs.push_back(blob_of(
      what.location == MORI_IO_LOCATION_GPU ? wire::blob_kind::gpu_ipc : wire::blob_kind::process,
      out.view()));
  return {};
}

// Each blob has an invitation: who attaches asks whether the region is still there, so that one
// that was deregistered is never attached anew.
base::status xgmi::describe_host(const memory::region& what, std::vector<wire::desc_blob>& blobs) {
  MORI_TRY(local::share_desk* const at, desk());
  const bool writable = (what.access & MORI_IO_ACCESS_WRITE) != 0;
  if (const auto offer = local::offer_segment(*at, what.begin, what.size_bytes, writable)) {
    note_offer(what.id, offer->from.number);
    blobs.push_back(blob_of(wire::blob_kind::shared_segment, local::encode(*offer)));
  }
  MORI_TRY(const auto card, local::own_process());
  const local::invitation lease = at->offer_lease();
  note_offer(what.id, lease.number);
  wire::desc_blob process = wire::pack_process(facts_of(card));
  link::byte_writer out;
  local::write(out, lease);
  const wire::desc_blob behind = blob_of(process.kind, out.view());
  process.bytes.insert(process.bytes.end(), behind.bytes.begin(), behind.bytes.end());
  blobs.push_back(std::move(process));
  return {};
}

base::status xgmi::describe_gpu(const memory::region& what, std::vector<wire::desc_blob>& blobs) {
  MORI_TRY(const auto on, devices_.at(what.device));
  MORI_TRY(local::share_desk* const at, desk());
  MORI_TRY(const auto offer, exporter_.offer(*at, on, address_of(what.begin), what.size_bytes));
  note_offer(what.id, offer.from.number);
  blobs.push_back(blob_of(wire::blob_kind::gpu_ipc, local::encode(offer)));
  return {};
}

void xgmi::withdraw(const memory::region& what) {
  std::vector<uint64_t> gone;
  local::share_desk* at = nullptr;
  {
    const std::lock_guard guard(lock_);
    const auto [first, last] = offers_.equal_range(what.id);
    for (auto each = first; each != last; ++each) gone.push_back(each->second);
    offers_.erase(first, last);
    at = desk_.get();
  }
  for (const uint64_t number : gone) at->withdraw(number);
}

// Blob `process`, read.
struct described_process {
  local::process_card card;
  local::invitation lease;
};

// The blob of that kind, or why there is none.
base::result<const wire::desc_blob*> blob_in(const wire::memory_desc& remote,
                                             wire::blob_kind kind) {
  const wire::desc_blob* const found = remote.find(kind);
  if (found == nullptr || found->bytes.empty())
    return base::fail(MORI_E_UNAVAILABLE, "engine '{}' had no XGMI when it described the region",
                      remote.engine_key);
  if (found->bytes[0] == reason_follows)
    return base::fail(MORI_E_UNAVAILABLE, "engine '{}' says: {}", remote.engine_key,
                      std::string_view(reinterpret_cast<const char*>(found->bytes.data()) + 1,
                                       found->bytes.size() - 1));
  return found;
}

base::result<described_process> process_in(const wire::memory_desc& remote) {
  MORI_TRY(const wire::desc_blob* const found, blob_in(remote, wire::blob_kind::process));
  if (found->bytes.size() < local::invitation_bytes)
    return base::fail(MORI_E_PROTOCOL, "a process described in {} bytes", found->bytes.size());
  wire::desc_blob front = *found;
  front.bytes.resize(found->bytes.size() - local::invitation_bytes);
  MORI_TRY(const wire::process_facts facts, wire::unpack_process(front));
  described_process made;
  made.card = {facts.os_process_id, facts.start_time,    facts.boot_id,
               facts.pid_namespace, facts.nonce_address, facts.nonce};
  link::byte_reader in(bytes_of(*found).last(local::invitation_bytes));
  made.lease = local::read_invitation(in);
  return made;
}

base::result<remote_host> xgmi::map_host(const wire::memory_desc& remote, base::deadline until) {
  const wire::desc_blob* const found = remote.find(wire::blob_kind::shared_segment);
  if (found == nullptr)
    return base::fail(MORI_E_UNAVAILABLE, "the memory was not allocated by mori_io_alloc");
  MORI_TRY(const auto offer, local::decode_segment_offer(bytes_of(*found)));
  if (!memory::inside(offer.offset, remote.size_bytes,
                      offer.file_bytes - local::segment_pool::nonce_bytes))
    return base::fail(MORI_E_PROTOCOL, "{} bytes at {} are outside a segment of {}",
                      remote.size_bytes, offer.offset, offer.file_bytes);
  remote_host made;
  MORI_TRY(made.mapping, mappings_.get(offer, until));
  made.address = address_of(made.mapping->data()) + offer.offset;
  made.text = "host memory mapped";
  return made;
}

base::result<remote_host> xgmi::attach_host(const wire::memory_desc& remote, base::deadline until) {
  MORI_TRY(const described_process of, process_in(remote));
  MORI_TRY(const auto own, local::own_process());
  MORI_CHECK(local::check_lease(of.lease, until));
  remote_host made;
  made.address = remote.address;
  if (of.card == own) {
    made.text = "host memory of this process";
    return made;
  }
  made.text = fmt::format("cross-memory attach to process {}", of.card.pid);
  const std::lock_guard guard(lock_);
  std::erase_if(attachments_, [](const auto& each) { return each.second.expired(); });
  std::weak_ptr<local::attachment>& slot = attachments_[of.card.nonce];
  if (auto earlier = slot.lock(); earlier && earlier->target() == of.card) {
    MORI_CHECK(earlier->prove());
    made.attachment = std::move(earlier);
    return made;
  }
  MORI_TRY(auto opened, local::attachment::open(of.card));
  made.attachment = std::move(opened);
  slot = made.attachment;
  return made;
}

// This process's own needs neither; then a mapping, which costs no system call per transfer.
base::result<remote_host> xgmi::open_host(const wire::memory_desc& remote, base::deadline until) {
  const auto of = process_in(remote);
  const auto own = local::own_process();
  if (of && own && of->card == *own) return attach_host(remote, until);
  auto mapped = map_host(remote, until);
  if (mapped) return mapped;
  auto attached = attach_host(remote, until);
  if (attached) {
    if (remote.find(wire::blob_kind::shared_segment) != nullptr)
      base::log(MORI_LOG_WARN, "memory of engine '{}' cannot be mapped, it is attached: {}",
                remote.engine_key, mapped.error().text);
    return attached;
  }
  return base::fail(MORI_E_UNAVAILABLE, "not mapped: {}; not attached: {}", mapped.error().text,
                    attached.error().text);
}

base::result<std::shared_ptr<path>> xgmi::attach(const pair& between, base::deadline until) {
  const bool local_gpu = between.local->location == MORI_IO_LOCATION_GPU;
  const bool remote_gpu = between.remote->location == MORI_IO_LOCATION_GPU;
  if (local_gpu && !remote_gpu) return open_device_and_host(between, until);
  if (remote_gpu) return attach_gpu(between, until);
  MORI_TRY(remote_host theirs, open_host(*between.remote, until));
  return std::shared_ptr<path>(make_host_path(between.local, std::move(theirs)));
}

// GPU memory here, host memory there. Mapped memory that is pinned here would be the device's to
// reach; what others map is not, so it goes through slots that are.
base::result<std::shared_ptr<path>> xgmi::open_device_and_host(const pair& between,
                                                               base::deadline until) {
  MORI_TRY(remote_host theirs, open_host(*between.remote, until));
  MORI_TRY(const auto on, devices_.at(between.local->device));
  const uint64_t device = address_of(between.local->begin);
  const bool is_here = theirs.attachment == nullptr;
  if (is_here && local::is_pinned(*on, theirs.address, between.remote->size_bytes)) {
    MORI_TRY(auto by, devices_.copier(on));
    device_sides sides{std::move(by), device, theirs.address, nullptr,
                       "GPU copies of pinned host memory, " + theirs.text};
    return std::shared_ptr<path>(make_device_path(std::move(sides)));
  }
  staged_sides sides;
  MORI_TRY(sides.pool, devices_.staging(on));
  sides.device = device;
  sides.device_is_local = true;
  sides.text = "GPU copies staged in pinned memory, " + theirs.text;
  sides.theirs = std::move(theirs);
  return std::shared_ptr<path>(make_staged_path(std::move(sides)));
}

base::result<std::shared_ptr<path>> xgmi::attach_gpu(const pair& between, base::deadline until) {
  MORI_TRY(const wire::desc_blob* const found, blob_in(*between.remote, wire::blob_kind::gpu_ipc));
  MORI_TRY(const auto offer, local::decode_gpu_offer(bytes_of(*found)));
  if (between.remote->size_bytes > offer.shared_bytes - offer.offset)
    return base::fail(MORI_E_PROTOCOL, "{} bytes at {} are outside GPU memory of {}",
                      between.remote->size_bytes, offer.offset, offer.shared_bytes);
  const bool local_gpu = between.local->location == MORI_IO_LOCATION_GPU;
  MORI_TRY(const auto on,
           local_gpu ? devices_.at(between.local->device) : devices_.of_uuid(offer.device));
  MORI_TRY(auto theirs, importer_.get(offer, on, until));
  const uint64_t mine = address_of(between.local->begin);
  if (local_gpu || local::is_pinned(*on, mine, between.local->size_bytes)) {
    MORI_TRY(auto by, devices_.copier(on));
    const uint64_t remote = theirs->address();
    std::string text = "GPU copies, " + theirs->text();
    device_sides sides{std::move(by), mine, remote, std::move(theirs), std::move(text)};
    return std::shared_ptr<path>(make_device_path(std::move(sides)));
  }
  staged_sides sides;
  MORI_TRY(sides.pool, devices_.staging(on));
  sides.device = theirs->address();
  sides.text = "GPU copies staged in pinned memory, " + theirs->text();
  sides.import = std::move(theirs);
  sides.host = between.local->begin;
  return std::shared_ptr<path>(make_staged_path(std::move(sides)));
}

}  // namespace

base::result<std::shared_ptr<backend>> make_xgmi(const xgmi_options& options,
                                                 std::span<const device::device_image> images) {
  if (options.stream_count < 1 || options.stream_count > most_xgmi_streams ||
      options.event_count < 1 || options.event_count > most_xgmi_streams)
    return base::fail(MORI_E_INVALID, "XGMI: {} streams and {} events, outside 1 .. {}",
                      options.stream_count, options.event_count, most_xgmi_streams);
  return std::shared_ptr<backend>(std::make_shared<xgmi>(options, images));
}

base::result<std::shared_ptr<backend>> make_xgmi(const xgmi_options& options) {
  return make_xgmi(options, {});
}

}  // namespace mori::io_core::transport
