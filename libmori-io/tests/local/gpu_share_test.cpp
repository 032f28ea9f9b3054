// gpu_share_test.cpp - GPU memory of another process: both ways of sharing it, its proof, and
// what cannot be shared. The other process is a real one; its device is fake or real.
#include "local/gpu_share.hpp"

#include "gpu_session.hpp"
#include "subject.hpp"

#include <algorithm>

using namespace mori;
using namespace mori::io_core::local;
using io_test::gpu_session;
using io_test::is_real;
using io_test::subject;

namespace {

base::deadline soon() { return base::deadline::after(20 * base::ns_per_s); }

gpu_offer offer_of(subject& owner, uint64_t address, uint64_t bytes) {
  const std::string text = owner.ask("gpu-offer", address, bytes);
  const auto made = decode_gpu_offer(io_test::unhex(text));
  REQUIRE_MESSAGE(made, text);
  return *made;
}

uint64_t sum_here(device::gpu& on, uint64_t address, uint64_t bytes) {
  const auto all = io_test::bytes_of_device(on, address, bytes);
  REQUIRE(all.size() == bytes);
  return io_test::sum(all.data(), all.size());
}

// Reads and writes a region of the owner's through an import, and looks there.
void use(const gpu_session& in, subject& owner, const gpu_offer& offer, uint64_t address,
         uint64_t bytes) {
  gpu_importer importer;
  REQUIRE(owner.ask("gpu-fill", address, bytes, 1) == "ok");
  const auto got = importer.get(offer, in.gpu, soon());
  REQUIRE_MESSAGE(got, got.error().text);
  CHECK(sum_here(*in.gpu, (*got)->address(), bytes) == owner.number("gpu-sum", address, bytes));
  REQUIRE(io_test::fill_device(*in.gpu, (*got)->address(), bytes, 2));
  CHECK(sum_here(*in.gpu, (*got)->address(), bytes) == owner.number("gpu-sum", address, bytes));
}

std::string refusal(const gpu_session& in, const gpu_offer& offer, mori_status status) {
  gpu_importer importer;
  const auto got = importer.get(offer, in.gpu, soon());
  REQUIRE(!got);
  CHECK(got.error().status == status);
  return got.error().text;
}

struct virtual_memory {
  uint64_t address = 0;
  uint64_t part_bytes = 0;
};
virtual_memory make_virtual(subject& owner, uint64_t granules, uint64_t parts) {
  virtual_memory made;
  std::istringstream answer(owner.ask("gpu-virtual", granules, parts));
  answer >> made.address >> made.part_bytes;
  REQUIRE_MESSAGE(made.part_bytes != 0, answer.str());
  return made;
}

}  // namespace

TEST_CASE("gpu share: by handle, a region in the middle of an allocation") {
  const gpu_session in;
  subject owner;
  REQUIRE(owner.ask("gpu-open") == "ok");
  const uint64_t whole = owner.number("gpu-buffer", 3 << 20);
  const gpu_offer offer = offer_of(owner, whole + 4864, 1'000'003);
  CHECK(offer.way == gpu_way::handle);
  CHECK(offer.offset >= 4864);
  CHECK(offer.address == whole + 4864);
  CHECK(offer.device == in.gpu->facts().uuid);
  use(in, owner, offer, whole + 4864, 1'000'003);
}

TEST_CASE("gpu share: regions of one allocation open it once, and the last one closes it") {
  const gpu_session in;
  subject owner;
  REQUIRE(owner.ask("gpu-open") == "ok");
  const uint64_t whole = owner.number("gpu-buffer", 1 << 20);
  const gpu_offer first = offer_of(owner, whole, 4096), second = offer_of(owner, whole + 8192, 99);
  gpu_importer importer;
  if (!is_real()) in.world().seen = {};
  auto a = importer.get(first, in.gpu, soon());
  auto b = importer.get(second, in.gpu, soon());
  auto c = importer.get(first, in.gpu, soon());
  REQUIRE(a);
  REQUIRE(b);
  REQUIRE(c);
  CHECK((*b)->address() - (*a)->address() == 8192);
  CHECK((*c)->address() == (*a)->address());
  CHECK((*a)->text() == "GPU memory by handle");
  if (is_real()) return;
  CHECK(in.world().seen.counts["cuIpcOpenMemHandle_v2"] == 2);  // and the proof, once
  CHECK(in.world().seen.counts["cuIpcCloseMemHandle"] == 1);
  a->reset();
  b->reset();
  CHECK(in.world().seen.counts["cuIpcCloseMemHandle"] == 1);
  c->reset();
  CHECK(in.world().seen.counts["cuIpcCloseMemHandle"] == 2);
  REQUIRE(importer.get(first, in.gpu, soon()));
}

TEST_CASE("gpu share: by descriptors, across parts of virtual memory") {
  const gpu_session in;
  subject owner;
  REQUIRE(owner.ask("gpu-open") == "ok");
  const virtual_memory memory = make_virtual(owner, 1, 3);
  const uint64_t bytes = memory.part_bytes + 12'345;
  // From the middle of the first part to the middle of the second, or of the third.
  for (const uint64_t skip : {uint64_t{256}, memory.part_bytes - 512}) {
    const uint64_t address = memory.address + skip;
    const gpu_offer offer = offer_of(owner, address, bytes);
    CHECK(offer.way == gpu_way::descriptors);
    CHECK(offer.offset == skip);
    CHECK(offer.part_count == (skip == 256 ? 2 : 3));
    CHECK(offer.shared_bytes == offer.part_count * memory.part_bytes);
    use(in, owner, offer, address, bytes);
  }
  const gpu_offer one = offer_of(owner, memory.address + memory.part_bytes, 16);
  CHECK(one.part_count == 1);
  CHECK(one.offset == 0);
  use(in, owner, one, memory.address + memory.part_bytes, 16);
}

TEST_CASE("gpu share: what was imported by descriptor outlives its owner") {
  const gpu_session in;
  gpu_importer importer;
  std::shared_ptr<gpu_import> got;
  uint64_t before = 0;
  {
    subject owner;
    REQUIRE(owner.ask("gpu-open") == "ok");
    const virtual_memory memory = make_virtual(owner, 1, 1);
    REQUIRE(owner.ask("gpu-fill", memory.address, 4096, 6) == "ok");
    before = owner.number("gpu-sum", memory.address, 4096);
    const gpu_offer offer = offer_of(owner, memory.address, 4096);
    auto made = importer.get(offer, in.gpu, soon());
    REQUIRE_MESSAGE(made, made.error().text);
    got = *made;
    owner.kill();
    CHECK(refusal(in, offer, MORI_E_UNAVAILABLE) ==
          "its unix socket cannot be reached from here: another network namespace?");
  }
  CHECK(sum_here(*in.gpu, got->address(), 4096) == before);
}

TEST_CASE("gpu share: memory of this process needs no import") {
  const gpu_session in;
  const auto memory = in.buffer(1 << 16);
  gpu_exporter exporter;
  gpu_importer importer;
  auto desk = share_desk::open();
  REQUIRE(desk);
  const auto offer = exporter.offer(**desk, in.gpu, memory.address() + 512, 100);
  REQUIRE_MESSAGE(offer, offer.error().text);
  const auto got = importer.get(*offer, in.gpu, soon());
  REQUIRE(got);
  CHECK((*got)->address() == memory.address() + 512);
  CHECK((*got)->text() == "GPU memory of this process");
}

TEST_CASE("gpu share: memory that cannot be shared, and what helps") {
  if (is_real()) return;
  const gpu_session in;
  subject owner;
  REQUIRE(owner.ask("gpu-open") == "ok");
  const virtual_memory memory = make_virtual(owner, 1, 1);
  owner.ask("gpu-fault", "cuMemExportToShareableHandle");
  CHECK(owner.ask("gpu-offer", memory.address, 100) ==
        fmt::format("{} GPU memory at {:#x} cannot be shared with other processes: no handle "
                    "(cuIpcGetMemHandle: CUDA_ERROR_INVALID_VALUE (1): another error), no "
                    "descriptor (cuMemExportToShareableHandle: CUDA_ERROR_UNKNOWN (999): another "
                    "error). Memory of PyTorch's expandable segments or of an asynchronous pool is "
                    "like that: set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False "
                    "(PYTORCH_HIP_ALLOC_CONF for AMD)",
                    int{MORI_E_UNAVAILABLE}, memory.address));
  // A plain allocation whose handle fails has no descriptor either.
  const uint64_t plain = owner.number("gpu-buffer", 4096);
  owner.ask("gpu-fault", "cuIpcGetMemHandle");
  CHECK(owner.ask("gpu-offer", plain, 100).find("no descriptor (cuMemRetainAllocationHandle: ") !=
        std::string::npos);
  CHECK(offer_of(owner, plain, 100).way == gpu_way::handle);
}

TEST_CASE("gpu share: memory that is not what its owner says") {
  const gpu_session in;
  subject owner;
  REQUIRE(owner.ask("gpu-open") == "ok");
  const uint64_t plain = owner.number("gpu-buffer", 4096);
  const virtual_memory memory = make_virtual(owner, 1, 2);
  for (const uint64_t address : {plain, memory.address}) {
    gpu_offer offer = offer_of(owner, address, 64);
    offer.nonce[0] ^= 1;
    CHECK(refusal(in, offer, MORI_E_UNAVAILABLE) ==
          "the nonce read from the device's memory is not the owner's");
    offer = offer_of(owner, address, 64);
    offer.backend = MORI_BACKEND_AMD;
    CHECK(refusal(in, offer, MORI_E_UNAVAILABLE).find("memory of an ") == 0);
  }
  gpu_offer offer = offer_of(owner, memory.address, memory.part_bytes + 1);
  offer.shared_bytes -= memory.part_bytes;
  CHECK(refusal(in, offer, MORI_E_PROTOCOL) ==
        fmt::format("a part of {} bytes, 0 are left", memory.part_bytes));
  offer.shared_bytes += 2 * memory.part_bytes;
  CHECK(refusal(in, offer, MORI_E_PROTOCOL) == fmt::format("parts of {} bytes, {} were offered",
                                                           2 * memory.part_bytes,
                                                           offer.shared_bytes));
  offer.part_count = 3;
  CHECK(refusal(in, offer, MORI_E_INVALID) == "part 3 of GPU memory, it has 2");
}

TEST_CASE("gpu share: offers that make no sense") {
  const gpu_session in;
  subject owner;
  REQUIRE(owner.ask("gpu-open") == "ok");
  const virtual_memory memory = make_virtual(owner, 1, 1);
  for (const uint64_t address : {owner.number("gpu-buffer", 4096), memory.address}) {
    const gpu_offer offer = offer_of(owner, address, 64);
    const link::byte_vector good = encode(offer);
    CHECK(good.size() < 512);
    for (size_t size = 0; size < good.size(); ++size)
      CHECK(!decode_gpu_offer(link::byte_span(good).first(size)));
    CHECK(encode(*decode_gpu_offer(good)) == good);
    link::byte_vector other = good;
    other[0] = std::byte{9};
    CHECK(decode_gpu_offer(other).error().text == "GPU memory offered in format 9, known is 1");
    other = good;
    other[1] = std::byte{3};  // a way that is none
    CHECK(decode_gpu_offer(other).error().status == MORI_E_PROTOCOL);
    gpu_offer outside = offer;
    outside.offset = outside.shared_bytes;
    CHECK(decode_gpu_offer(encode(outside)).error().status == MORI_E_PROTOCOL);
  }
}

TEST_CASE("gpu share: whichever call of the importer fails is named, and nothing leaks") {
  if (is_real()) return;
  const gpu_session in;
  subject owner;
  REQUIRE(owner.ask("gpu-open") == "ok");
  const uint64_t plain = owner.number("gpu-buffer", 4096);
  const virtual_memory memory = make_virtual(owner, 1, 2);
  const gpu_offer by_handle = offer_of(owner, plain, 64);
  const gpu_offer by_descriptors = offer_of(owner, memory.address, memory.part_bytes + 64);
  const int steps = in.fail_each_call([&]() -> base::status {
    gpu_importer importer;
    MORI_TRY(const auto a, importer.get(by_handle, in.gpu, soon()));
    MORI_TRY(const auto b, importer.get(by_descriptors, in.gpu, soon()));
    return {};
  });
  CHECK(steps > 15);
}

TEST_CASE("gpu share: whichever call of the exporter fails, nothing leaks") {
  if (is_real()) return;
  const gpu_session in;
  const auto plain = in.buffer(4096);
  auto mapped = device::mapped_memory::create(in.gpu, 4096, 1);
  REQUIRE(mapped);
  const auto kept = in.world().alive;
  int step = 0;
  for (bool was_reached = true; was_reached;) {
    in.world().seen = {};
    in.world().set.fail_at = ++step;
    {
      auto desk = share_desk::open();
      REQUIRE(desk);
      gpu_exporter exporter;
      const auto a = exporter.offer(**desk, in.gpu, plain.address(), 64);
      const auto b = exporter.offer(**desk, in.gpu, mapped->address(), 64);
      was_reached = !in.world().seen.failed.empty();
      CAPTURE(in.world().seen.failed);
      CAPTURE(step);
      // The failure of a handle alone is none: it is then tried by descriptor.
      if (was_reached && in.world().seen.failed != "cuIpcGetMemHandle") CHECK((!a || !b));
      if (!was_reached) CHECK((a && b));
    }
    CHECK(in.world().alive == kept);
  }
  CHECK(step > 15);
}
