// Segments: what is reserved stays, what is released is gone, and a full
// filesystem is a status.
#include <mori/link/segment.hpp>
#include <mori/link/transport.hpp>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace base = mori::base;
using namespace mori::link;

namespace {

constexpr uint64_t page = 4096;

uint64_t used_bytes(int fd) {
  struct stat about{};
  REQUIRE(::fstat(fd, &about) == 0);
  return static_cast<uint64_t>(about.st_blocks) * 512;
}

segment mapped(base::unique_fd fd, uint64_t bytes) {
  auto made = segment::map(std::move(fd), bytes);
  REQUIRE(made);
  return std::move(*made);
}

}  // namespace

TEST_CASE("a memfd takes pages when they are reserved and gives them back") {
  auto fd = segment::create_file(1 << 20, "");
  REQUIRE(fd);
  const base::unique_fd view(::fcntl(fd->get(), F_DUPFD_CLOEXEC, 0));
  CHECK((::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(used_bytes(view.get()) == 0);
  segment s = mapped(std::move(*fd), 1 << 20);
  CHECK(s.size_bytes() == 1 << 20);
  CHECK(used_bytes(view.get()) == 0);
  REQUIRE(s.reserve(0, 16 * page));
  const uint64_t reserved = used_bytes(view.get());
  CHECK(reserved >= 16 * page);
  std::memset(s.data(), 0x5A, 16 * page);
  CHECK(used_bytes(view.get()) == reserved);
  REQUIRE(s.reserve(0, 16 * page));  // again changes nothing
  CHECK(s.data()[0] == std::byte{0x5A});
  REQUIRE(s.release(0, 16 * page));
  CHECK(s.data()[0] == std::byte{0});
  CHECK(s.data()[16 * page - 1] == std::byte{0});
}

TEST_CASE("release gives whole pages back only") {
  auto fd = segment::create_file(4 * page, "");
  REQUIRE(fd);
  segment s = mapped(std::move(*fd), 4 * page);
  REQUIRE(s.reserve(0, 4 * page));
  std::memset(s.data(), 1, 4 * page);
  REQUIRE(s.release(page - 1, 2));
  CHECK(std::all_of(s.data(), s.data() + 4 * page, [](std::byte b) { return b == std::byte{1}; }));
  REQUIRE(s.release(100, 2 * page));
  CHECK(s.data()[page - 1] == std::byte{1});
  CHECK(s.data()[page] == std::byte{0});
  CHECK(s.data()[2 * page - 1] == std::byte{0});
  CHECK(s.data()[2 * page] == std::byte{1});
}

TEST_CASE("two mappings of one file are the same memory") {
  auto fd = segment::create_file(page, "");
  REQUIRE(fd);
  base::unique_fd again(::fcntl(fd->get(), F_DUPFD_CLOEXEC, 0));
  segment a = mapped(std::move(*fd), page);
  segment b = mapped(std::move(again), page);
  REQUIRE(a.reserve(0, page));
  a.data()[7] = std::byte{42};
  CHECK(b.data()[7] == std::byte{42});
  segment c = std::move(b);
  CHECK(b.data() == nullptr);  // NOLINT(bugprone-use-after-move): what a move leaves is promised
  CHECK(c.data()[7] == std::byte{42});
}

TEST_CASE("sizes and ranges are checked") {
  CHECK(segment::create_file(0, "").error().status == MORI_E_INVALID);
  CHECK(segment::create_file(UINT64_MAX, "").error().status == MORI_E_INVALID);
  CHECK(segment::create_file(page, "/no/such/directory").error().status == MORI_E_OS);
  auto fd = segment::create_file(page, "");
  REQUIRE(fd);
  base::unique_fd again(::fcntl(fd->get(), F_DUPFD_CLOEXEC, 0));
  const auto longer = segment::map(std::move(again), page + 1);
  REQUIRE(!longer);
  CHECK(longer.error().text == "a segment of 4097 bytes over a file of 4096");
  segment s = mapped(std::move(*fd), page);
  CHECK(s.reserve(0, 0));
  CHECK(s.reserve(page, 0));
  CHECK(s.reserve(page, 1).error().text == "bytes 4096 + 1 are outside a segment of 4096");
  CHECK(s.reserve(1, UINT64_MAX).error().status == MORI_E_INVALID);
  CHECK(s.release(page + 1, 0).error().status == MORI_E_INVALID);
  CHECK(segment().data() == nullptr);
}

TEST_CASE("a full filesystem is a status with numbers, and room helps again") {
  char directory[] = "/tmp/mori-segment-XXXXXX";
  REQUIRE(::mkdtemp(directory) != nullptr);
  if (::geteuid() != 0 || ::mount("mori-test", directory, "tmpfs", 0, "size=1m") != 0) {
    std::fprintf(stderr, "skipped: a small tmpfs needs the right to mount\n");
    ::rmdir(directory);
    return;
  }
  {
    auto fd = segment::create_file(64 << 20, directory);  // larger than the filesystem: fine
    REQUIRE(fd);
    segment s = mapped(std::move(*fd), 64 << 20);
    REQUIRE(s.reserve(0, 512 << 10));
    const auto full = s.reserve(0, 2 << 20);
    REQUIRE(!full);
    CHECK(full.error().status == MORI_E_NO_MEMORY);
    CHECK(full.error().text.find("cannot reserve 2097152 bytes of shared memory, ") == 0);
    CHECK(full.error().text.find(" are free") != std::string::npos);
    REQUIRE(s.release(0, 512 << 10));
    REQUIRE(s.reserve(1 << 20, 512 << 10));
    std::memset(s.data() + (1 << 20), 1, 512 << 10);
  }
  CHECK(::umount(directory) == 0);  // nothing holds it: the file had no name
  ::rmdir(directory);
}

TEST_CASE("transports answer with a reason") {
  REQUIRE(transports().size() == 3);
  CHECK(shared_memory_transport().viable().yes);
  CHECK(tcp_transport().viable().yes);
  for (const transport* t : transports()) {
    CHECK(!t->viable().reason.empty());
    CHECK(!t->reachable({"a", 1}, {"b", 1}).reason.empty());
  }
  const transport& shared = shared_memory_transport();
  CHECK(shared.reachable({"a", 1}, {"a", 1}).yes);
  CHECK(shared.reachable({"a", 0}, {"a", 1}).yes);  // unknown: to be tried
  CHECK(!shared.reachable({"a", 2}, {"a", 1}).yes);
  CHECK(shared.reachable({"a", 1}, {"b", 1}).reason == "on another node ('b', not 'a')");
  CHECK(this_place("").node_id == this_place("").node_id);
  CHECK(this_place("x").node_id == "x");
  CHECK(this_place("x").host_key == this_place("").host_key);
}

TEST_CASE("a segment beyond the file size limit is a status, not a signal") {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{1 << 16, 1 << 16};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto refused = segment::create_file((1 << 16) + 1, "");
    const bool right = !refused && refused.error().status == MORI_E_NO_MEMORY &&
                       refused.error().text.find("limit (ulimit -f) of 65536") != std::string::npos;
    _exit(right && segment::create_file(1 << 16, "") ? 0 : 1);
  }
  int state = 1;
  REQUIRE(waitpid(child, &state, 0) == child);
  CHECK(state == 0);
}
