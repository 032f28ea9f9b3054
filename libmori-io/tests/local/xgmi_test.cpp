// xgmi_test.cpp - the XGMI backend between real processes: all kinds of memory on both sides,
// both ways, every byte; which way is taken and why another is not; what is revoked, denied
// or gone.
#include "gpu_session.hpp"
#include "local/segment_pool.hpp"
#include "subject.hpp"
#include "xgmi_node.hpp"

#include <algorithm>
#include <random>

using namespace mori;
using namespace mori::io_core::local;
using io_test::gpu_session;
using io_test::is_real;
using io_test::piece;
using io_test::subject;
using io_test::xgmi_node;

namespace {

uint64_t seed() {
  if (const char* given = std::getenv("MORI_TEST_SEED")) return std::strtoull(given, nullptr, 10);
  static const uint64_t fresh = std::random_device{}();
  return fresh;
}

constexpr int both = MORI_IO_ACCESS_READ | MORI_IO_ACCESS_WRITE;

// Memory of the other process, of one kind.
struct theirs {
  std::string kind;
  uint64_t address = 0;
  uint64_t bytes = 0;
  bool on_gpu = false;
};

theirs make_theirs(subject& in, const std::string& kind, uint64_t bytes) {
  theirs made{kind, 0, bytes, kind.starts_with("gpu")};
  std::string answer;
  if (kind == "plain")
    answer = in.ask("map", bytes);
  else if (kind == "segment")
    answer = in.ask("allocate", bytes, 1);
  else if (kind == "gpu")
    answer = in.ask("gpu-buffer", bytes);
  else
    answer = in.ask("gpu-virtual", is_real() ? 2 : bytes / fake::granule / 3 + 1, 3);
  made.address = std::strtoull(answer.c_str(), nullptr, 10);
  REQUIRE_MESSAGE(made.address > 4096, answer);
  return made;
}

io_core::wire::memory_desc describe(subject& in, const theirs& what, uint32_t id,
                                    int access = both) {
  const std::string text =
      in.ask("xgmi-region", id, what.address, what.bytes, what.on_gpu ? 1 : 0, access);
  const auto made = io_core::wire::unpack_memory(io_test::unhex(text));
  REQUIRE_MESSAGE(made, text);
  return *made;
}

void fill(subject& in, const theirs& what, uint64_t with) {
  REQUIRE(in.ask(what.on_gpu ? "gpu-fill" : "fill", what.address, what.bytes, with) == "ok");
}
uint64_t sum(subject& in, const theirs& what) {
  return in.number(what.on_gpu ? "gpu-sum" : "sum", what.address, what.bytes);
}

// Memory of this process, of one kind.
class ours {
 public:
  ours(const gpu_session& in, const std::string& kind, uint64_t bytes) : in_(in), bytes_(bytes) {
    if (kind == "plain") {
      plain_.resize(bytes);
      address_ = device::address_of(plain_.data());
    } else if (kind == "segment") {
      const auto made = segment_pool::of_process().allocate(bytes);
      REQUIRE(made);
      segment_ = *made;
      address_ = device::address_of(segment_);
    } else if (kind == "pinned") {
      auto made = device::pinned_buffer::allocate(in.gpu, bytes);
      REQUIRE(made);
      pinned_ = std::move(*made);
      address_ = device::address_of(pinned_.data());
    } else {
      device_ = in.buffer(bytes);
      address_ = device_.address();
      on_gpu_ = true;
    }
  }
  ours(const ours&) = delete;
  ours& operator=(const ours&) = delete;
  ~ours() {
    if (segment_ != nullptr) CHECK(segment_pool::of_process().free(segment_));
  }

  io_test::region_options options(uint32_t id) const {
    return {id, address_, bytes_, on_gpu_ ? in_.gpu->facts().ordinal : -1, both};
  }
  void fill(uint64_t with) {
    if (on_gpu_)
      REQUIRE(io_test::fill_device(*in_.gpu, address_, bytes_, with));
    else
      io_test::fill(reinterpret_cast<std::byte*>(address_), bytes_, with);
  }
  std::vector<std::byte> bytes() const {
    if (on_gpu_) return io_test::bytes_of_device(*in_.gpu, address_, bytes_);
    const auto* const from = reinterpret_cast<const std::byte*>(address_);
    return {from, from + bytes_};
  }

 private:
  const gpu_session& in_;
  const uint64_t bytes_;
  uint64_t address_ = 0;
  bool on_gpu_ = false;
  std::vector<std::byte> plain_;
  void* segment_ = nullptr;
  device::pinned_buffer pinned_;
  device::device_buffer device_;
};

// As the engine makes them: sorted by remote offset, not overlapping at their destination.
std::vector<piece> random_pieces(std::mt19937_64& random, uint64_t bytes, uint64_t largest) {
  std::vector<piece> all;
  uint64_t local = 0, remote = 0;
  for (;;) {
    local += random() % 60;
    remote += random() % 60;
    const uint64_t size = random() % 9 == 0 ? 0 : 1 + random() % largest;
    if (local + size > bytes || remote + size > bytes) break;
    all.push_back({local, remote, size});
    local += size;
    remote += size;
  }
  // Local places in another order than remote ones.
  for (size_t i = 0; i + 1 < all.size(); i += 2)
    if (all[i].bytes == all[i + 1].bytes) std::swap(all[i].local_offset, all[i + 1].local_offset);
  return all;
}

std::string expected_way(const std::string& here, const std::string& there, pid_t pid) {
  const std::string attach = fmt::format("cross-memory attach to process {}", pid);
  const std::string host = there == "segment" ? "host memory mapped" : attach;
  const std::string gpu = there == "gpu" ? "GPU memory by handle" : "GPU memory by descriptor";
  const bool direct = here == "gpu" || here == "pinned";
  if (!there.starts_with("gpu") && here != "gpu") return host;
  if (!there.starts_with("gpu")) return "GPU copies staged in pinned memory, " + host;
  return direct ? "GPU copies, " + gpu : "GPU copies staged in pinned memory, " + gpu;
}

std::string failure(const base::status& outcome) {
  return outcome ? "" : fmt::format("{} {}", outcome.error().status, outcome.error().text);
}

}  // namespace

TEST_CASE("xgmi: all kinds of memory on both sides, both ways") {
  const gpu_session in;
  subject other;
  REQUIRE(other.ask("gpu-open") == "ok");
  constexpr uint64_t bytes = 3'000'007;
  std::mt19937_64 random(seed());
  INFO("repeat with MORI_TEST_SEED=", seed());
  uint32_t id = 0;
  for (const std::string there : {"plain", "segment", "gpu", "gpu-virtual"}) {
    const theirs remote = make_theirs(other, there, bytes);
    const auto desc = describe(other, remote, ++id);
    for (const std::string here : {"plain", "segment", "pinned", "gpu"}) {
      CAPTURE(there);
      CAPTURE(here);
      ours local(in, here, bytes);
      xgmi_node node;
      const auto attached = node.attach(node.add(local.options(1)), desc);
      REQUIRE_MESSAGE(attached, attached.error().text);
      CHECK(node.path_text() == expected_way(here, there, other.pid()));
      for (const bool is_read : {true, false})
        for (const uint64_t largest : {700u, 1'500'000u}) {
          CAPTURE(is_read);
          CAPTURE(largest);
          local.fill(1);
          fill(other, remote, 2);
          std::vector<std::byte> mine(bytes), away(bytes);
          io_test::fill(mine.data(), bytes, 1);
          io_test::fill(away.data(), bytes, 2);
          const auto pieces = random_pieces(random, bytes, largest);
          for (const piece& each : pieces)
            if (is_read)
              std::copy_n(away.data() + each.remote_offset, each.bytes,
                          mine.data() + each.local_offset);
            else
              std::copy_n(mine.data() + each.local_offset, each.bytes,
                          away.data() + each.remote_offset);
          const auto outcome = node.run(is_read, pieces, 1 + random() % 2'000'000);
          REQUIRE_MESSAGE(outcome, outcome.error().text);
          CHECK((local.bytes() == mine));
          CHECK(sum(other, remote) == io_test::sum(away.data(), bytes));
        }
      CHECK(node.run(true, {}));  // no piece at all
    }
  }
}

TEST_CASE("xgmi: both processes may begin") {
  const gpu_session in;
  subject first, second;
  REQUIRE(first.ask("gpu-open") == "ok");
  REQUIRE(second.ask("gpu-open") == "ok");
  const theirs a = make_theirs(first, "segment", 10'000), b = make_theirs(second, "plain", 10'000);
  const std::string of_a = first.ask("xgmi-region", 1, a.address, a.bytes, 0, both);
  const std::string of_b = second.ask("xgmi-region", 1, b.address, b.bytes, 0, both);
  CHECK(second.ask("xgmi-attach", 1, b.address, b.bytes, 0, both, of_a) == "host memory mapped");
  CHECK(first.ask("xgmi-attach", 1, a.address, a.bytes, 0, both, of_b) ==
        fmt::format("cross-memory attach to process {}", second.pid()));
  fill(first, a, 3);
  CHECK(second.ask("xgmi-job", 1, 0, 0, 10'000) == "ok");
  CHECK(sum(first, a) == sum(second, b));
  fill(second, b, 4);
  CHECK(first.ask("xgmi-job", 1, 0, 0, 10'000) == "ok");
  CHECK(sum(first, a) == sum(second, b));
  fill(first, a, 5);
  CHECK(first.ask("xgmi-job", 0, 0, 0, 10'000) == "ok");
  CHECK(sum(first, a) == sum(second, b));
}

TEST_CASE("xgmi: engines of one process use the addresses") {
  const gpu_session in;
  for (const std::string kind : {"plain", "segment", "gpu"}) {
    CAPTURE(kind);
    ours from(in, kind, 100'000), to(in, kind, 100'000);
    xgmi_node owner, node;
    owner.add(to.options(7));
    const auto attached = node.attach(node.add(from.options(1)), owner.desc_of(7));
    REQUIRE_MESSAGE(attached, attached.error().text);
    CHECK(node.path_text() == (kind == "gpu" ? "GPU copies, GPU memory of this process"
                                             : "host memory of this process"));
    from.fill(1);
    to.fill(2);
    const piece all{0, 0, 100'000};
    CHECK(node.run(false, {&all, 1}));
    CHECK((from.bytes() == to.bytes()));
    owner.withdraw(7);
  }
}

TEST_CASE("xgmi: a deregistered region is not attached anew, whatever was attached before") {
  const gpu_session in;
  subject other;
  REQUIRE(other.ask("gpu-open") == "ok");
  ours local(in, "plain", 4096);
  for (const std::string kind : {"plain", "segment", "gpu", "gpu-virtual"}) {
    CAPTURE(kind);
    const theirs remote = make_theirs(other, kind, 4096);
    const auto first = describe(other, remote, 1), second = describe(other, remote, 2);
    xgmi_node node;
    const auto mine = node.add(local.options(9));
    REQUIRE(node.attach(mine, first));
    REQUIRE(other.ask("xgmi-withdraw", 1) == "ok");
    const std::string gone = "the memory is not offered (any more)";
    const std::string expected = remote.on_gpu ? gone
                                 : kind == "segment"
                                     ? fmt::format("not mapped: {}; not attached: {}", gone, gone)
                                     : fmt::format(
                                           "not mapped: the memory was not allocated by "
                                           "mori_io_alloc; not attached: {}",
                                           gone);
    CHECK(failure(node.attach(mine, first)) ==
          fmt::format("{} {}", remote.on_gpu ? int{MORI_E_NOT_FOUND} : int{MORI_E_UNAVAILABLE},
                      expected));
    CHECK(node.attach(mine, second));
    REQUIRE(other.ask("xgmi-withdraw", 2) == "ok");
  }
}

TEST_CASE("xgmi: a segment that cannot be mapped is attached") {
  const gpu_session in;
  subject other;
  const theirs remote = make_theirs(other, "segment", 5000);
  auto desc = describe(other, remote, 1);
  for (auto& blob : desc.blobs)
    if (blob.kind == io_core::wire::blob_kind::shared_segment) blob.bytes.back() ^= 1;  // the nonce
  ours local(in, "plain", 5000);
  xgmi_node node;
  REQUIRE(node.attach(node.add(local.options(1)), desc));
  CHECK(node.path_text() == fmt::format("cross-memory attach to process {}", other.pid()));
  fill(other, remote, 6);
  const piece all{0, 0, 5000};
  CHECK(node.run(true, {&all, 1}));
  CHECK(io_test::sum(local.bytes().data(), 5000) == sum(other, remote));
}

TEST_CASE("xgmi: denied, in another pid namespace, gone: the reasons of both ways") {
  if (::geteuid() != 0) return;
  subject first({"--user", "65534"}), second({"--user", "65534"}), inside({"--pid-namespace"});
  const theirs plain = make_theirs(second, "plain", 4096);
  const theirs here = make_theirs(first, "plain", 4096);
  const std::string desc = second.ask("xgmi-region", 1, plain.address, plain.bytes, 0, both);
  CHECK(first.ask("xgmi-attach", 1, here.address, here.bytes, 0, both, desc) ==
        fmt::format("cross-memory attach to process {}", second.pid()));
  REQUIRE(second.ask("hide") == "ok");
  const std::string denied = fmt::format(
      "attaching to process {} is denied: a security policy forbids it, or the process "
      "may not be dumped",
      second.pid());
  // Also in the middle, when the path is open: the engine then goes another way.
  CHECK(first.ask("xgmi-job", 1, 0, 0, 4096) ==
        fmt::format("{} {}", int{MORI_E_UNAVAILABLE}, denied));
  CHECK(
      first.ask("xgmi-attach", 2, here.address, here.bytes, 0, both, desc) ==
      fmt::format("{} not mapped: the memory was not allocated by mori_io_alloc; not attached: {}",
                  int{MORI_E_UNAVAILABLE}, denied));
  // Segments need no such right.
  const theirs segment = make_theirs(second, "segment", 4096);
  const std::string mapped = second.ask("xgmi-region", 2, segment.address, segment.bytes, 0, both);
  CHECK(first.ask("xgmi-attach", 3, here.address, here.bytes, 0, both, mapped) ==
        "host memory mapped");
  // Nor a common pid namespace.
  const theirs away = make_theirs(inside, "plain", 4096);
  const std::string of_away = inside.ask("xgmi-region", 1, away.address, away.bytes, 0, both);
  CHECK(first.ask("xgmi-attach", 4, here.address, here.bytes, 0, both, of_away)
            .find("not attached: process 1 is in another pid namespace (") != std::string::npos);
  const theirs shared = make_theirs(inside, "segment", 4096);
  const std::string of_shared = inside.ask("xgmi-region", 2, shared.address, shared.bytes, 0, both);
  CHECK(first.ask("xgmi-attach", 5, here.address, here.bytes, 0, both, of_shared) ==
        "host memory mapped");
  second.kill();
  CHECK(
      first.ask("xgmi-attach", 6, here.address, here.bytes, 0, both, desc) ==
      fmt::format("{} not mapped: the memory was not allocated by mori_io_alloc; not attached: its "
                  "unix socket cannot be reached from here: another network namespace?",
                  int{MORI_E_UNAVAILABLE}));
}

TEST_CASE("xgmi: the owner dies while bytes move") {
  const gpu_session in;
  subject other;
  const theirs plain = make_theirs(other, "plain", 1 << 20);
  const pid_t pid = other.pid();
  ours local(in, "plain", 1 << 20);
  xgmi_node node;
  REQUIRE(node.attach(node.add(local.options(1)), describe(other, plain, 1)));
  const piece all{0, 0, 1 << 20};
  CHECK(node.run(false, {&all, 1}));
  other.kill();
  CHECK(failure(node.run(false, {&all, 1})) ==
        fmt::format("{} process {} has ended", int{MORI_E_PEER_DEAD}, pid));
}

TEST_CASE("xgmi: regions for reading only") {
  const gpu_session in;
  subject other;
  const theirs segment = make_theirs(other, "segment", 4096);
  ours local(in, "plain", 4096);
  xgmi_node node;
  REQUIRE(
      node.attach(node.add(local.options(1)), describe(other, segment, 1, MORI_IO_ACCESS_READ)));
  const piece all{0, 0, 4096};
  CHECK(node.run(true, {&all, 1}));
  CHECK(failure(node.run(false, {&all, 1})) ==
        fmt::format("{} the memory is offered for reading only", int{MORI_E_INVALID}));
}

TEST_CASE("xgmi: descriptors without its blobs, or with wrong ones") {
  const gpu_session in;
  subject other;
  REQUIRE(other.ask("gpu-open") == "ok");
  ours local(in, "plain", 4096);
  xgmi_node node;
  const auto mine = node.add(local.options(1));
  for (const std::string kind : {"plain", "segment", "gpu"}) {
    CAPTURE(kind);
    const theirs remote = make_theirs(other, kind, 4096);
    const auto good = describe(other, remote, 1);
    auto desc = good;
    desc.blobs.clear();
    CHECK(failure(node.attach(mine, desc))
              .find("engine 'owner' had no XGMI when it described the region") !=
          std::string::npos);
    desc = good;
    desc.size_bytes = uint64_t{1} << 40;
    if (kind == "gpu") CHECK(failure(node.attach(mine, desc)).find("outside") != std::string::npos);
    for (size_t blob = 0; blob < good.blobs.size(); ++blob)
      for (size_t size = 0; size < good.blobs[blob].bytes.size(); size += 7) {
        desc = good;
        desc.blobs = {good.blobs[blob]};
        desc.blobs[0].bytes.resize(size);
        CHECK(!node.attach(mine, desc));
      }
    REQUIRE(other.ask("xgmi-withdraw", 1) == "ok");
  }
}

TEST_CASE("xgmi: GPU memory that cannot be shared says so to the other side") {
  if (is_real()) return;
  const gpu_session in;
  subject other;
  REQUIRE(other.ask("gpu-open") == "ok");
  const theirs memory = make_theirs(other, "gpu-virtual", 4096);
  other.ask("gpu-fault", "cuMemExportToShareableHandle");
  ours local(in, "gpu", 4096);
  xgmi_node node;
  const std::string text =
      failure(node.attach(node.add(local.options(1)), describe(other, memory, 1)));
  CHECK(text.find(fmt::format("{} engine 'owner' says: GPU memory at {:#x} cannot be shared with "
                              "other processes: ",
                              int{MORI_E_UNAVAILABLE}, memory.address)) == 0);
  CHECK(text.find("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False") != std::string::npos);
}

TEST_CASE("xgmi: jobs that are cancelled leave nothing behind") {
  const gpu_session in;
  subject other;
  REQUIRE(other.ask("gpu-open") == "ok");
  constexpr uint64_t bytes = 8 << 20;
  for (const std::string there : {"plain", "gpu"})
    for (const std::string here : {"plain", "gpu"}) {
      const theirs remote = make_theirs(other, there, bytes);
      ours local(in, here, bytes);
      xgmi_node node;
      REQUIRE(node.attach(node.add(local.options(1)), describe(other, remote, 1)));
      const piece all{0, 0, bytes};
      for (const bool is_read : {true, false})
        for (const int turns : {0, 1, 2}) (void)!node.run_and_cancel(is_read, {&all, 1}, turns);
      CHECK(node.run(true, {&all, 1}));
      REQUIRE(other.ask("xgmi-withdraw", 1) == "ok");
    }
}

TEST_CASE("xgmi: whichever call of the driver fails, a job fails or not, and nothing leaks") {
  if (is_real()) return;
  const gpu_session in;
  subject other;
  REQUIRE(other.ask("gpu-open") == "ok");
  constexpr uint64_t bytes = 2 << 20;
  const theirs gpu = make_theirs(other, "gpu", bytes), plain = make_theirs(other, "plain", bytes);
  const auto of_gpu = describe(other, gpu, 1), of_plain = describe(other, plain, 2);
  const int steps = in.fail_each_call([&]() -> base::status {
    MORI_TRY(const auto memory, device::device_buffer::allocate(in.gpu, bytes));
    xgmi_node node;
    const auto mine = node.add({1, memory.address(), bytes, in.gpu->facts().ordinal, both});
    // Its description may fail for itself; then others do not reach it.
    if (!in.world().seen.failed.empty())
      return base::fail(MORI_E_OS, "{}: in describe()", in.world().seen.failed);
    std::vector<piece> pieces;
    for (uint64_t i = 0; i < 8; ++i) pieces.push_back({i * 5000, i * 4000, 1000});
    pieces.push_back({1 << 20, 1 << 20, 1 << 20});
    for (const auto& desc : {of_gpu, of_plain}) {
      MORI_CHECK(node.attach(mine, desc));
      MORI_CHECK(node.run(true, pieces));
      MORI_CHECK(node.run(false, pieces));
    }
    return {};
  });
  CHECK(steps > 60);
}

TEST_CASE("xgmi: options outside their range") {
  for (const int32_t count : {0, -1, io_core::transport::most_xgmi_streams + 1}) {
    const auto made = io_core::transport::make_xgmi({.stream_count = count, .event_count = 1});
    REQUIRE(!made);
    CHECK(made.error().text ==
          fmt::format("XGMI: {} streams and 1 events, outside 1 .. 1024", count));
    CHECK(!io_core::transport::make_xgmi({.stream_count = 1, .event_count = count}));
  }
}
