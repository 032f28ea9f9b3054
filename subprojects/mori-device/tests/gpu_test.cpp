// gpu_test.cpp - what every implementation of mori/device/gpu.hpp keeps, over fake
// drivers: rules, owners, faults. See gpu_subject.hpp.
#include "gpu_subject.hpp"

#include <dirent.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <thread>

using namespace mori;
using namespace mori::device;
using test::session;
using test::subject;

namespace {

std::vector<subject*> subjects() {
  std::vector<subject*> all = test::amd_subjects();
  for (subject* each : test::nvidia_subjects()) all.push_back(each);
  return all;
}

template <class Call>
struct at_exit {
  Call call;
  ~at_exit() { call(); }
};

int open_descriptors() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

bool is_all(uint64_t address, uint8_t value, uint64_t bytes) {
  const auto* const first = reinterpret_cast<const uint8_t*>(address);
  return std::all_of(first, first + bytes, [&](uint8_t each) { return each == value; });
}

const device_image fake_image = {"any", "fake code", 10};

// --- Every call once, in the order a library makes them. After each, the thread must be as it was.

template <class T>
T seen(const session& in, T result) {
  in.check_thread();
  return result;
}

base::status use_memory(const session& in, const std::shared_ptr<gpu>& on) {
  MORI_TRY(const device_buffer buffer, seen(in, device_buffer::allocate(on, 4096)));
  CHECK(is_all(buffer.address(), 0, 4096));
  MORI_TRY(const pinned_buffer pinned, seen(in, pinned_buffer::allocate(on, 4096)));
  CHECK(is_all(address_of(pinned.data()), 0, 4096));
  std::array<char, 64> ordinary{};
  MORI_TRY(const uint64_t reached, seen(in, on->register_host(ordinary.data(), 64)));
  const at_exit unregister{[&] { on->unregister_host(ordinary.data()); }};
  CHECK(reached == address_of(ordinary.data()));
  MORI_TRY(const gpu::pointer_facts of_device, seen(in, on->look_up(buffer.address())));
  CHECK((of_device.is_device && !of_device.is_host && of_device.ordinal == 1));
  MORI_TRY(const gpu::pointer_facts of_host, seen(in, on->look_up(address_of(pinned.data()))));
  CHECK((of_host.is_host && !of_host.is_device));
  int stranger = 0;
  MORI_TRY(const gpu::pointer_facts of_none, seen(in, on->look_up(address_of(&stranger))));
  CHECK((!of_none.is_host && !of_none.is_device && of_none.ordinal == -1));
  return {};
}

base::status use_sharing(const session& in, const std::shared_ptr<gpu>& on) {
  MORI_TRY(const device_buffer buffer, seen(in, device_buffer::allocate(on, 4096)));
  MORI_TRY(const ipc_handle handle, seen(in, on->export_ipc(buffer.address())));
  MORI_TRY(const uint64_t opened, seen(in, on->import_ipc(handle)));
  const at_exit close{[&] { on->close_ipc(opened); }};
  CHECK(opened == buffer.address());
  MORI_TRY(const gpu::range whole, seen(in, on->allocation_at(buffer.address() + 4095)));
  CHECK((whole.address == buffer.address() && whole.bytes == 4096));
  if (on->facts().exports_dmabuf) {
    MORI_TRY(const base::unique_fd exported, seen(in, on->export_dmabuf(buffer.address(), 4096)));
    CHECK(exported.get() > 2);
  }
  MORI_CHECK(seen(in, on->enable_peer(0)));
  MORI_CHECK(seen(in, on->enable_peer(0)));  // again, and to itself: fine
  return seen(in, on->enable_peer(1));
}

base::status use_virtual_memory(const session& in, const std::shared_ptr<gpu>& on) {
  constexpr uint64_t alignment = uint64_t{1} << 21;
  if (!on->facts().exports_descriptors) return {};
  MORI_TRY(const mapped_memory mine, seen(in, mapped_memory::create(on, 100, alignment)));
  CHECK(mine.address() % alignment == 0);
  CHECK(is_all(mine.address(), 0, fake::granule));
  MORI_TRY(const base::unique_fd exported, seen(in, mine.export_descriptor()));
  MORI_TRY(const mapped_memory same,
           seen(in, mapped_memory::import(on, exported.get(), 100, alignment)));
  CHECK(same.address() != mine.address());
  std::memcpy(reinterpret_cast<char*>(mine.address()), "told", 5);
  CHECK(std::string_view(reinterpret_cast<char*>(same.address())) == "told");
  MORI_TRY(const gpu::range whole, seen(in, on->allocation_at(mine.address() + 77)));
  CHECK((whole.address == mine.address() && whole.bytes == fake::granule));
  MORI_TRY(const uint64_t memory, seen(in, on->memory_at(mine.address() + 77)));
  const at_exit release{[&] { on->release_memory(memory); }};
  MORI_TRY(const base::unique_fd again, seen(in, on->export_memory(memory)));
  CHECK(again.get() > 2);
  return {};
}

base::status use_streams(const session& in, const std::shared_ptr<gpu>& on) {
  MORI_TRY(const own_stream stream, seen(in, own_stream::create(on)));
  uint64_t from = 42, to = 0;
  MORI_CHECK(seen(in, on->copy_now(address_of(&to), address_of(&from), sizeof to)));
  CHECK(to == 42);
  MORI_CHECK(seen(in, on->fill_now(address_of(&to), 1, 2)));
  CHECK(to == 0x101);
  MORI_TRY(const bool is_capturing, seen(in, on->is_capturing(stream.get())));
  CHECK(!is_capturing);
  MORI_TRY(void* const event, seen(in, on->create_event()));
  const at_exit destroy{[&] { on->destroy_event(event); }};
  MORI_CHECK(seen(in, on->record_event(event, stream.get())));
  MORI_CHECK(seen(in, on->wait_event(stream.get(), event)));
  MORI_CHECK(seen(in, on->synchronize_event(event)));
  MORI_TRY(const bool is_reached, seen(in, on->is_reached(event)));
  CHECK(is_reached);
  return {};
}

base::status use_code(const session& in, const std::shared_ptr<gpu>& on) {
  MORI_TRY(void* const module, seen(in, on->load_module(fake_image)));
  const at_exit unload{[&] { on->unload_module(module); }};
  MORI_TRY(void* const kernel, seen(in, on->find_kernel(module, "double")));
  MORI_TRY(const uint32_t lanes, seen(in, on->largest_block(kernel)));
  CHECK(lanes == 1024);
  MORI_TRY(const uint32_t blocks, seen(in, on->resident_blocks(kernel, 512)));
  CHECK(blocks == 4);
  uint64_t words[] = {1, 2, 3};
  uint64_t address = address_of(words), count = 2;
  void* arguments[] = {&address, &count};
  MORI_CHECK(seen(in, on->launch(kernel, {7, 64}, arguments, nullptr)));
  CHECK((words[0] == 2 && words[1] == 4 && words[2] == 3));
  return {};
}

base::status use_everything(const session& in, const std::shared_ptr<gpu>& on) {
  MORI_CHECK(use_memory(in, on));
  MORI_CHECK(use_sharing(in, on));
  MORI_CHECK(use_virtual_memory(in, on));
  MORI_CHECK(use_streams(in, on));
  return use_code(in, on);
}

}  // namespace

TEST_CASE("gpu: the facts") {
  for (subject* each : subjects()) {
    CAPTURE(each->name);
    session in(*each);
    const auto on = in.open();
    const gpu_facts& facts = on->facts();
    CHECK(facts.backend == each->backend);
    CHECK(facts.ordinal == 1);
    CHECK(facts.name.starts_with("Fake "));
    CHECK(facts.name.ends_with(" 1"));
    CHECK(facts.architecture == each->architecture);
    CHECK(std::memcmp(facts.uuid.data(), "0123456789abcde1", 16) == 0);
    CHECK(facts.memory_bytes == uint64_t{192} << 30);
    CHECK(facts.multiprocessor_count == 304);
    CHECK(facts.wave_lane_count == each->wave_lane_count);
    CHECK(facts.exports_descriptors);
    CHECK(facts.exports_dmabuf);
  }
}

TEST_CASE("gpu: one object for each device") {
  for (subject* each : subjects()) {
    CAPTURE(each->name);
    session in(*each);
    CHECK(in.open() == in.open());
    in.world().set.expected_device = 0;
    const auto first = each->current();
    REQUIRE(first);
    in.keep_helpers(**first);
    in.world().set.expected_device = 1;
    CHECK(*first != in.open());
    CHECK((*first)->facts().ordinal == 0);
  }
}

TEST_CASE("gpu: each call leaves the thread as it was, and all that was made is given back") {
  for (subject* each : subjects()) {
    CAPTURE(each->name);
    session in(*each);
    const int before = open_descriptors();
    const auto on = in.open();
    const auto outcome = use_everything(in, on);
    CHECK_MESSAGE(outcome, outcome.error().text);
    CHECK(open_descriptors() == before);
    CHECK(in.has_given_back());
    CHECK(in.world().seen.steps > 40);
  }
}

TEST_CASE("gpu: whichever call fails is named, and nothing leaks") {
  for (subject* each : subjects()) {
    CAPTURE(each->name);
    session in(*each);
    const int before = open_descriptors();
    const auto on = in.open();
    int step = 0;
    for (bool was_reached = true; was_reached;) {
      in.world().seen = {};
      in.world().set.fail_at = ++step;
      const auto outcome = use_everything(in, on);
      const std::string failed = in.world().seen.failed;
      CAPTURE(failed);
      CAPTURE(step);
      was_reached = !failed.empty();
      CHECK(!outcome == was_reached);
      if (outcome) continue;
      CHECK(outcome.error().text.starts_with(failed + ": "));
      CHECK(outcome.error().text.find("(999)") != std::string::npos);
      CHECK(outcome.error().status == MORI_E_OS);
      CHECK(in.has_given_back());
      CHECK(open_descriptors() == before);
    }
    CHECK(step > 40);
  }
}

TEST_CASE("gpu: what lies at an address, and what does not") {
  for (subject* each : subjects()) {
    CAPTURE(each->name);
    session in(*each);
    const auto on = in.open();
    int stranger = 0;
    CHECK(!on->allocation_at(address_of(&stranger)));
    in.check_thread();
    // No virtual memory, though it is the device's.
    const auto plain = device_buffer::allocate(on, 4096);
    REQUIRE(plain);
    CHECK(!on->memory_at(plain->address()));
    CHECK(!on->allocation_at(plain->address() + 4096));
    CHECK(!on->export_ipc(plain->address() + 256));
    in.check_thread();
  }
}

TEST_CASE("gpu: devices by number and by UUID") {
  for (subject* each : subjects()) {
    CAPTURE(each->name);
    session in(*each);
    const auto on = in.open();
    const auto same = each->at(1);
    REQUIRE_MESSAGE(same, same.error().text);
    CHECK(*same == on);
    for (const int32_t ordinal : {-1, 2, INT32_MAX}) {
      const auto none = each->at(ordinal);
      REQUIRE(!none);
      CHECK(none.error().status == MORI_E_INVALID);
      CHECK(none.error().text == fmt::format("device {} is outside 0 .. 1", ordinal));
    }
    auto uuid = on->facts().uuid;
    const auto found = each->find(uuid);
    REQUIRE_MESSAGE(found, found.error().text);
    CHECK(*found == 1);
    uuid[15] = 'z';
    const auto missing = each->find(uuid);
    REQUIRE(!missing);
    CHECK(missing.error().status == MORI_E_NOT_FOUND);
    CHECK(missing.error().text == "this process does not see that device, only 2 others");
    // Asking for a UUID needs no context, so it takes none.
    in.world().seen.misplaced.clear();
    in.world().seen.unrelaxed.clear();
    in.check_thread();
  }
}

TEST_CASE("gpu: where an address lies, without a device") {
  for (subject* each : subjects()) {
    CAPTURE(each->name);
    session in(*each);
    const auto on = in.open();
    const auto buffer = device_buffer::allocate(on, 4096);
    REQUIRE(buffer);
    const auto contexts = in.world().seen.counts["cuDevicePrimaryCtxRetain"];
    const auto inside = each->locate(buffer->address() + 4095);
    REQUIRE_MESSAGE(inside, inside.error().text);
    CHECK((inside->is_device && !inside->is_host));
    int stranger = 0;
    const auto none = each->locate(address_of(&stranger));
    REQUIRE(none);
    CHECK((!none->is_device && !none->is_host && none->ordinal == -1));
    CHECK(in.world().seen.counts["cuDevicePrimaryCtxRetain"] == contexts);
    in.world().set.faults["cuPointerGetAttribute"] = 999;
    in.world().set.faults["hipPointerGetAttributes"] = 999;
    const auto failed = each->locate(buffer->address());
    REQUIRE(!failed);
    CHECK(failed.error().text.ends_with(": error 999"));
    in.world().set.faults.clear();
    in.world().seen.misplaced.clear();  // on whichever device is current
    in.world().seen.unrelaxed.clear();
  }
}

TEST_CASE("gpu: exhausted memory is said so") {
  for (subject* each : subjects()) {
    CAPTURE(each->name);
    session in(*each);
    const auto on = in.open();
    in.world().set.most_bytes = 1000;
    const auto allocated = on->allocate(1001);
    REQUIRE(!allocated);
    CHECK(allocated.error().status == MORI_E_NO_MEMORY);
    CHECK(allocated.error().text ==
          fmt::format("{}: {}", each->allocate_call, each->out_of_memory));
    const auto on_host = on->allocate_host(1001);
    REQUIRE(!on_host);
    CHECK(on_host.error().status == MORI_E_NO_MEMORY);
    CHECK(on_host.error().text ==
          fmt::format("{}: {}", each->allocate_host_call, each->out_of_memory));
    const auto created = mapped_memory::create(on, 1001, 1);
    REQUIRE(!created);
    CHECK(created.error().status == MORI_E_NO_MEMORY);
    CHECK(created.error().text ==
          fmt::format("{}: {}", each->create_memory_call, each->out_of_memory));
    in.check_thread();
  }
}

TEST_CASE("gpu: no call for nothing") {
  for (subject* each : subjects()) {
    CAPTURE(each->name);
    session in(*each);
    const auto on = in.open();
    const auto counts = in.world().seen.counts;
    on->free(0);
    on->free_host(nullptr);
    CHECK(on->copy(0, 0, 0, nullptr));
    CHECK(on->fill(0, 1, 0, nullptr));
    CHECK(on->enable_peer(1));
    CHECK(in.world().seen.counts == counts);
  }
}

TEST_CASE("gpu: events that are not reached, streams that are captured") {
  for (subject* each : subjects()) {
    CAPTURE(each->name);
    session in(*each);
    const auto on = in.open();
    in.world().set.events_are_reached = false;
    in.world().set.is_capturing = true;
    const auto event = on->create_event();
    REQUIRE(event);
    const auto reached = on->is_reached(*event);
    REQUIRE(reached);
    CHECK(!*reached);
    in.check_thread();
    const auto capturing = on->is_capturing(nullptr);
    REQUIRE(capturing);
    CHECK(*capturing);
    on->destroy_event(*event);
  }
}

TEST_CASE("gpu: a launch has the shape and the stream it was given") {
  for (subject* each : subjects()) {
    CAPTURE(each->name);
    session in(*each);
    const auto on = in.open();
    const auto module = on->load_module(fake_image);
    REQUIRE(module);
    const auto kernel = on->find_kernel(*module, "nothing");
    REQUIRE(kernel);
    int stream = 0;
    CHECK(on->launch(*kernel, {1, 1}, {}, nullptr));
    CHECK(on->launch(*kernel, {4294967295u, 1024}, {}, &stream));
    const fake::launched& last = in.world().seen.last_launch;
    CHECK(last.kernel == "nothing");
    CHECK(last.block_count == 4294967295u);
    CHECK(last.block_lanes == 1024);
    CHECK(last.stream == &stream);
    const auto missing = on->find_kernel(*module, "absent");
    CHECK(!missing);
    const auto wrong = on->load_module({"any", "other code", 11});
    CHECK(!wrong);
    on->unload_module(*module);
  }
}

TEST_CASE("gpu: variables of modules, whoever loaded them") {
  for (subject* each : subjects()) {
    CAPTURE(each->name);
    session in(*each);
    const auto on = in.open();
    const auto module = on->load_module(fake_image);
    REQUIRE(module);
    uint64_t word = 0;
    in.world().set.variables[{reinterpret_cast<uint64_t>(*module), "there"}] = {&word, 8};
    const auto found = on->find_variable(*module, "there");
    REQUIRE(found);
    CHECK(found->address == reinterpret_cast<uint64_t>(&word));
    CHECK(found->bytes == 8);
    // A variable that is not there is no failure, and leaves no error behind.
    const auto absent = on->find_variable(*module, "elsewhere");
    REQUIRE(absent);
    CHECK(absent->address == 0);
    CHECK(in.here().last_error == 0);
    in.world().set.fail_at = in.world().seen.steps + 1;
    const auto failed = on->find_variable(*module, "there");
    CHECK(!failed);
    in.world().set.fail_at = 0;
    on->unload_module(*module);
  }
}

TEST_CASE("gpu: the caller's device and capture mode, whatever they are") {
  for (subject* each : subjects()) {
    CAPTURE(each->name);
    session in(*each);
    const auto second = in.open();
    in.world().set.expected_device = 0;
    const auto first = each->current();
    REQUIRE(first);
    CHECK((*first)->facts().ordinal == 0);
    in.keep_helpers(**first);
    for (const int mode : {0, 1, 2}) {
      in.here().capture_mode = mode;
      for (const auto& [on, callers] : {std::pair{second, 0}, {second, 1}, {*first, 1}}) {
        in.here().device = callers;
        in.world().set.expected_device = on->facts().ordinal;
        CHECK(device_buffer::allocate(on, 64));
        CHECK(in.here().device == callers);
        CHECK(in.here().capture_mode == mode);
      }
    }
    in.here().device = 0;
    in.here().capture_mode = 0;
  }
}

TEST_CASE("gpu: unaligned ranges are not handed out") {
  for (subject* each : subjects()) {
    CAPTURE(each->name);
    if (each->backend != MORI_BACKEND_AMD) continue;  // the others' drivers heed the alignment
    session in(*each);
    const auto on = in.open();
    in.world().set.heeds_alignment = false;
    const auto outcome = use_virtual_memory(in, on);
    CHECK_MESSAGE(outcome, outcome.error().text);
  }
}

TEST_CASE("gpu: one device from several threads") {
  for (subject* each : subjects()) {
    CAPTURE(each->name);
    session in(*each);
    const auto on = in.open();
    std::array<std::string, 4> faults;
    std::vector<std::thread> threads;
    for (std::string& fault : faults)
      threads.emplace_back([&] {
        each->fake.here() = {};
        for (int round = 0; round < 50; ++round) {
          const auto made = device_buffer::allocate(on, 64);
          const auto mapped = mapped_memory::create(on, 64, 1);
          if (!made) fault = made.error().text;
          if (!mapped) fault = mapped.error().text;
        }
        if (each->fake.here().device != 0 || each->fake.here().capture_mode != 0)
          fault = "the thread is not as it was";
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& fault : faults) CHECK(fault == "");
  }
}
