// amd_gpu_test.cpp - what is AMD's own in src/amd_gpu.cpp: how the driver is found, what its
// versions lack. What all implementations keep is in gpu_test.cpp.
#include "amd_gpu.hpp"

#include "gpu_drivers.hpp"
#include "gpu_subject.hpp"

#include <unistd.h>

#include <cstring>
#include <thread>

using namespace mori;
using namespace mori::device;
using test::session;
using test::subject;

// Paths of the fakes: FAKE_AMD is 7.2, FAKE_AMD_7 is 7.0, FAKE_AMD_6 is 6.2, FAKE_AMD_5 is 5.1,
// FAKE_AMD_INCOMPLETE lacks a call that is needed, FAKE_AMD_UNUSED is 7.2 and opened by one test.
namespace {

const char* const current_names[] = {FAKE_AMD};
const char* const names_7[] = {FAKE_AMD_7};
const char* const names_6[] = {FAKE_AMD_6};
const char* const names_5[] = {FAKE_AMD_5};

subject make_subject(const char* name, const char* path, std::span<const char* const> names) {
  return {
      .name = name,
      .fake = fake::driver(path),
      .current = [names] { return amd_gpu::current(names); },
      .at = [names](int32_t ordinal) { return amd_gpu::at(ordinal, names); },
      .find = [names](const auto& uuid) { return amd_gpu::find(uuid, names); },
      .locate = [names](uint64_t address) { return amd_gpu::locate(address, names); },
      .backend = MORI_BACKEND_AMD,
      .architecture = "gfx942",
      .wave_lane_count = 64,
      .allocate_call = "hipExtMallocWithFlags",
      .allocate_host_call = "hipHostMalloc",
      .create_memory_call = "hipMemCreate",
      .out_of_memory = "hipErrorOutOfMemory (2): out of memory",
  };
}

subject& version_7() {
  static subject made = make_subject("AMD 7.0", FAKE_AMD_7, names_7);
  return made;
}
subject& version_6() {
  static subject made = make_subject("AMD 6.2", FAKE_AMD_6, names_6);
  return made;
}
subject& version_5() {
  static subject made = make_subject("AMD 5.1", FAKE_AMD_5, names_5);
  return made;
}

subject& current_version() {
  static subject made = make_subject("AMD 7.2", FAKE_AMD, current_names);
  return made;
}

// Devices that differ from what the one object for them knows.
const auto open_anew = [] { return amd_gpu::open(current_names); };

}  // namespace

std::vector<subject*> test::amd_subjects() { return {&current_version(), &version_7()}; }

TEST_CASE("amd: no driver: every name that was tried, as the loader words it") {
  const char* const names[] = {"libmori-none.so.7", "libmori-none.so.6", "libmori-none.so.5"};
  for (const auto& text :
       {amd_gpu::current(names).error().text, amd_gpu::describe(names).error().text}) {
    CHECK(text ==
          "no driver library: libmori-none.so.7: cannot open shared object file: No such file or "
          "directory; libmori-none.so.6: cannot open shared object file: No such file or "
          "directory; libmori-none.so.5: cannot open shared object file: No such file or "
          "directory");
  }
  CHECK(amd_gpu::current(names).error().status == MORI_E_UNAVAILABLE);
}

TEST_CASE("amd: the driver of this machine, or why there is none") {
  const auto described = gpu::describe(MORI_BACKEND_AMD);
  const auto current = gpu::current(MORI_BACKEND_AMD);
  CHECK(bool(described) == bool(current));
  if (current) {
    CHECK((*current)->facts().architecture.starts_with("gfx"));
    CHECK(described->find("gfx") != std::string::npos);
    return;
  }
  CHECK(current.error().status == MORI_E_UNAVAILABLE);
  CHECK(described.error().text == current.error().text);
  const std::string& text = current.error().text;
  if (amd::driver()) {
    CHECK(text.starts_with("libamdhip64.so."));
    CHECK(text.find(", HIP ") != std::string::npos);
    CHECK(text.find("hipGetDeviceCount: hipErrorNoDevice (100)") != std::string::npos);
  } else {
    for (const char* name : {"libamdhip64.so.7: ", "libamdhip64.so.6: ", "libamdhip64.so.5: "})
      CHECK(text.find(name) != std::string::npos);
  }
}

TEST_CASE("amd: what a driver says of itself") {
  session in(current_version());
  const auto many = amd_gpu::describe(current_names);
  REQUIRE(many);
  CHECK(*many == FAKE_AMD ", HIP 7.2.26015, 2 devices, the first: Fake Instinct 0 (gfx942)");
  in.world().set.device_count = 1;
  CHECK(*amd_gpu::describe(current_names) == FAKE_AMD
        ", HIP 7.2.26015, 1 device, the first: Fake Instinct 0 (gfx942)");
  in.world().seen = {};  // the first device was asked, not the expected one
}

TEST_CASE("amd: a driver that sees no device, or fails to look") {
  session in(current_version());
  in.world().set.device_count = 0;
  const auto none = amd_gpu::current(current_names);
  REQUIRE(!none);
  CHECK(none.error().status == MORI_E_UNAVAILABLE);
  CHECK(none.error().text == FAKE_AMD ", HIP 7.2.26015: hipGetDeviceCount: hipErrorNoDevice (100)");
  in.check_thread();
  in.world().set.faults["hipGetDeviceCount"] = 2;
  const auto failed = amd_gpu::describe(current_names);
  REQUIRE(!failed);
  CHECK(failed.error().status == MORI_E_UNAVAILABLE);
  CHECK(failed.error().text == FAKE_AMD
        ", HIP 7.2.26015: hipGetDeviceCount: hipErrorOutOfMemory (2): out of memory");
}

TEST_CASE("amd: a library that lacks what is needed names it") {
  const char* const names[] = {FAKE_AMD_INCOMPLETE};
  const auto made = amd_gpu::current(names);
  REQUIRE(!made);
  CHECK(made.error().status == MORI_E_UNAVAILABLE);
  CHECK(made.error().text == FAKE_AMD_INCOMPLETE
        " is no driver that can be used: it lacks hipModuleLaunchKernel");
}

TEST_CASE("amd: a library that is loaded already comes first") {
  REQUIRE(version_5().fake.is_open());
  const char* const names[] = {"libmori-none.so.7", FAKE_AMD_5};
  const char* const behind[] = {FAKE_AMD_UNUSED, FAKE_AMD_5};
  for (const auto& each : {std::span<const char* const>(names), {behind}}) {
    const auto hip = amd::driver(each);
    REQUIRE(hip);
    CHECK((*hip)->library == FAKE_AMD_5);
    CHECK((*hip)->version == 50120531);
  }
}

TEST_CASE("amd: the table is filled once, whoever comes first") {
  const char* const names[] = {FAKE_AMD_UNUSED};
  std::array<const amd::calls*, 8> tables{};
  std::vector<std::thread> threads;
  for (auto& table : tables)
    threads.emplace_back([&] {
      if (const auto hip = amd::driver(names); hip) table = *hip;
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto* table : tables) CHECK(table == tables[0]);
  REQUIRE(tables[0] != nullptr);
  const fake::driver opened(FAKE_AMD_UNUSED);
  CHECK(opened.world().seen.counts["hipRuntimeGetVersion"] == 1);
}

TEST_CASE("amd: errors that are no failures do not stay behind") {
  session in(current_version());
  in.world().set.has_uuid = false;
  in.world().set.faults["hipDeviceGetUuid"] = 1;
  const auto on = in.open(open_anew);
  in.check_thread();
  CHECK(std::memcmp(on->facts().uuid.data(), "0000:c1:00.0\0\0\0\0", 16) == 0);
}

TEST_CASE("amd: devices without a number of their own are told apart by the bus") {
  session in(current_version());
  in.world().set.has_uuid = false;
  CHECK(std::memcmp(in.open(open_anew)->facts().uuid.data(), "0000:c1:00.0\0\0\0\0", 16) == 0);
}

TEST_CASE("amd: a device that cannot be made current is not used") {
  session in(current_version());
  const auto on = in.open();
  in.world().set.faults["hipSetDevice"] = 999;
  const auto made = on->allocate(64);
  REQUIRE(!made);
  CHECK(made.error().text == "hipSetDevice: hipErrorUnknown (999)");
  CHECK(in.world().seen.counts["hipExtMallocWithFlags"] == 0);
  in.check_thread();
}

TEST_CASE("amd: no device is set where it is current") {
  session in(current_version());
  const auto on = in.open();
  in.here().device = 1;
  const int before = in.world().seen.counts["hipSetDevice"];
  CHECK(device_buffer::allocate(on, 64));
  CHECK(in.world().seen.counts["hipSetDevice"] == before);
  in.here().device = 0;
}

TEST_CASE("amd: names of architectures") {
  session in(current_version());
  for (const auto& [given, expected] : {std::pair{"gfx90a:sramecc+:xnack-", "gfx90a"},
                                        {"gfx950", "gfx950"},
                                        {"gfx1250:xnack-", "gfx1250"}}) {
    in.world().set.architecture = given;
    CHECK(in.open(open_anew)->facts().architecture == expected);
  }
  in.world().set.architecture = "AMD";
  in.here().device = 1;
  const auto made = open_anew();
  in.here().device = 0;
  REQUIRE(!made);
  CHECK(made.error().status == MORI_E_UNAVAILABLE);
  CHECK(made.error().text == FAKE_AMD
        ", HIP 7.2.26015 gives no architecture's name for device 1: \"AMD\"");
}

TEST_CASE("amd: no memory of a peer that is out of reach") {
  session in(current_version());
  const auto on = in.open();
  in.world().set.reaches_peers = false;
  const auto outcome = on->enable_peer(0);
  REQUIRE(!outcome);
  CHECK(outcome.error().status == MORI_E_UNAVAILABLE);
  CHECK(outcome.error().text == "device 1 (Fake Instinct 1) cannot reach memory of device 0");
}

TEST_CASE("amd: a device without virtual memory") {
  session in(current_version());
  in.world().set.has_virtual_memory = false;
  const auto on = in.open(open_anew);
  CHECK(!on->facts().exports_descriptors);
  const auto made = mapped_memory::create(on, 64, 1);
  REQUIRE(!made);
  CHECK(made.error().status == MORI_E_UNAVAILABLE);
  CHECK(made.error().text == "no virtual memory on Fake Instinct 1: the device has none");
}

TEST_CASE("amd: 6.2: coarse-grained virtual memory is refused, dma-bufs are unknown") {
  session in(version_6());
  const auto on = in.open();
  CHECK(!on->facts().exports_descriptors);
  CHECK(!on->facts().exports_dmabuf);
  CHECK(on->facts().architecture == "gfx942");
  const std::string why =
      "no virtual memory on Fake Instinct 1: " FAKE_AMD_6
      ", HIP 6.2.41133 makes coarse-grained memory only, in which peers would not see stores "
      "before a kernel's end; 7.0.2 is the first that makes uncached memory";
  for (const auto& text : {on->granule_bytes().error().text, on->create_memory(1).error().text,
                           on->import_memory(0).error().text, on->export_memory(1).error().text,
                           on->reserve_addresses(1, 1).error().text, on->map(1, 1, 1).error().text})
    CHECK(text == why);
  on->release_memory(1);
  on->release_addresses(1, 1);
  on->unmap(1, 1);
  CHECK(in.world().seen.counts["hipMemRelease"] == 0);
  const auto buffer = device_buffer::allocate(on, 64);
  REQUIRE(buffer);
  CHECK(in.world().lives("uncached memory", buffer->address()));
  const auto exported = on->export_dmabuf(buffer->address(), 64);
  REQUIRE(!exported);
  CHECK(exported.error().status == MORI_E_UNAVAILABLE);
  CHECK(exported.error().text == FAKE_AMD_6
        ", HIP 6.2.41133 cannot export memory as a dma-buf: it lacks "
        "hipMemGetHandleForAddressRange, which is new in 7.0");
  const auto handle = on->export_ipc(buffer->address());
  REQUIRE(handle);
  const auto opened = on->import_ipc(*handle);
  REQUIRE(opened);
  on->close_ipc(*opened);
}

TEST_CASE("amd: 5.1: fine-grained instead of uncached memory, no capture modes, the old layout") {
  session in(version_5());
  {
    const auto on = in.open();
    CHECK(on->facts().architecture == "gfx942");
    CHECK(std::memcmp(on->facts().uuid.data(), "0000:c1:00.0\0\0\0\0", 16) == 0);
    CHECK(on->granule_bytes().error().text == "no virtual memory on Fake Instinct 1: " FAKE_AMD_5
                                              ", HIP 5.1.20531 has no calls for it");
    const auto buffer = device_buffer::allocate(on, 64);
    REQUIRE(buffer);
    CHECK(in.world().lives("fine-grained memory", buffer->address()));
    int stranger = 0;
    const auto facts = on->look_up(address_of(&stranger));
    REQUIRE(facts);
    CHECK(!facts->is_device);
    const auto handle = on->export_ipc(buffer->address());
    REQUIRE(handle);
    const auto opened = on->import_ipc(*handle);
    REQUIRE(opened);
    on->close_ipc(*opened);
    in.check_thread();
  }
  // There are no modes in which captures could be left alone.
  in.world().seen.unrelaxed.clear();
}
