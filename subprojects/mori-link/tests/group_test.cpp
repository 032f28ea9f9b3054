// Groups whose ranks are threads of this process, over real sockets.
#include <mori/base/process.hpp>
#include <mori/base/sanitizer.hpp>
#include <mori/link/group.hpp>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

namespace base = mori::base;
using namespace mori::link;

namespace {

base::deadline soon() { return base::deadline::after(10 * base::ns_per_s); }

group_options options_for(const unique_id& id, int rank, int size) {
  group_options options;
  options.id = id;
  options.rank = rank;
  options.size = size;
  options.join_timeout_ns = 90 * base::ns_per_s;
  return options;
}

using body_type = std::function<void(group&)>;

// doctest's assertions are thread-safe; the ranks run `body` at the same time.
void run_group(int size, const body_type& body,
               const std::function<void(group_options&)>& adjust = {}) {
  const auto id = make_unique_id();
  REQUIRE(id);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back([&, rank] {
      auto options = options_for(*id, rank, size);
      if (adjust) adjust(options);
      auto joined = group::join(options);
      const std::string problem = joined ? "" : joined.error().text;
      CHECK_MESSAGE(joined, problem);
      if (joined) body(**joined);
    });
  for (auto& rank : ranks) rank.join();
}

size_t count_of(const char* directory) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    count += !entry.path().empty();
  return count;
}

// Waits for the first fault of a group, without looking again and again.
struct fault_watch {
  explicit fault_watch(group& g) {
    g.on_fault([this](const group_fault& what) {
      const std::lock_guard guard(lock);
      seen.push_back(what);
      changed.notify_all();
    });
  }
  bool wait() {
    std::unique_lock held(lock);
    return changed.wait_for(held, std::chrono::seconds(5), [&] { return !seen.empty(); });
  }
  std::mutex lock;
  std::condition_variable changed;
  std::vector<group_fault> seen;
};

}  // namespace

TEST_CASE("threads of one process: every size, all calls") {
  for (const int size : {1, 2, 3, 5, 8})
    run_group(size, [&](group& g) {
      CHECK(g.size() == size);
      CHECK(g.node_count() == 1);
      CHECK(g.node_of(size - 1) == 0);
      CHECK(g.node_of(size) == -1);
      CHECK(g.local_ranks().size() == static_cast<size_t>(size));
      CHECK(g.process_id_of(0) == ::getpid());
      for (uint8_t round = 0; round < 20; ++round) {
        CHECK(g.barrier(soon()));
        const size_t bytes = round % 3 == 0 ? 0 : size_t{1} << round % 12;
        const std::vector<std::byte> mine(bytes, static_cast<std::byte>(g.rank() + round));
        std::vector<std::byte> all(bytes * static_cast<size_t>(size));
        CHECK(g.allgather(mine, all, soon()));
        for (size_t i = 0; i < all.size(); ++i)
          if (all[i] != static_cast<std::byte>(i / bytes + round)) FAIL("wrong byte");
      }
      for (int owner = 0; owner < size; ++owner) {
        const base::unique_fd own(::memfd_create("test", MFD_CLOEXEC));
        const auto mark = static_cast<char>('a' + g.rank());
        REQUIRE(::pwrite(own.get(), &mark, 1, 0) == 1);
        const auto got = g.share_descriptor(owner, own.get(), soon());
        REQUIRE(got);
        CHECK(got->get() != own.get());
        char seen = 0;
        REQUIRE(::pread(got->get(), &seen, 1, 0) == 1);
        CHECK(seen == 'a' + owner);
      }
      CHECK(g.barrier(soon()));
      g.leave();
      CHECK(g.fault() == nullptr);
      CHECK(g.barrier(soon()).error().status == MORI_E_STATE);
      CHECK(g.barrier(soon()).error().text ==
            "PE " + std::to_string(g.rank()) + " has left the group");
      g.leave();  // twice is fine
    });
}

// A table of this size once was more than a frame of the rendezvous could hold.
TEST_CASE("a group of 80 ranks, as threads") {
  run_group(80, [](group& g) {
    std::vector<int> all(80);
    const int mine = 1000 + g.rank();
    REQUIRE(g.allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
                        base::deadline::after(90 * base::ns_per_s)));
    for (int rank = 0; rank < 80; ++rank) CHECK(all[static_cast<size_t>(rank)] == 1000 + rank);
    g.leave();
  });
}

TEST_CASE("the largest block, and one byte more") {
  constexpr size_t most = size_t{1} << 20;
  run_group(3, [&](group& g) {
    const std::vector<std::byte> mine(most, static_cast<std::byte>(g.rank() + 1));
    std::vector<std::byte> all(most * 3);
    REQUIRE(g.allgather(mine, all, soon()));
    for (size_t i = 0; i < all.size(); i += 4095)
      CHECK(all[i] == static_cast<std::byte>(i / most + 1));
    const std::vector<std::byte> over(most + 1);
    all.resize(3 * over.size());
    CHECK(g.allgather(over, all, soon()).error().text ==
          "allgather of 1048577 bytes, the limit is 1048576");
    CHECK(g.allgather(mine, all, soon()).error().text ==
          "allgather of 1048576 bytes by 3 ranks into 3145731 bytes");
    CHECK(g.barrier(soon()));
    g.leave();
  });
}

TEST_CASE("node ids split a host; descriptors pass inside a node only") {
  run_group(
      5,
      [](group& g) {
        CHECK(g.node_count() == 2);
        const std::vector<int> even{0, 2, 4}, odd{1, 3};
        const auto& mine = g.rank() % 2 == 0 ? even : odd;
        CHECK(std::vector<int>(g.local_ranks().begin(), g.local_ranks().end()) == mine);
        for (int rank = 0; rank < 5; ++rank) CHECK(g.node_of(rank) == rank % 2);
        CHECK(g.share_descriptor(mine.back(), 0, soon()));
        const auto far = g.share_descriptor(1 - g.rank() % 2, 0, soon());
        REQUIRE(!far);
        CHECK(far.error().status == MORI_E_INVALID);
        CHECK(far.error().text.find(" is not on the node of PE ") != std::string::npos);
        CHECK(g.barrier(soon()));
        g.leave();
      },
      [](group_options& o) { o.node_id = o.rank % 2 == 0 ? "even" : "odd"; });
}

TEST_CASE("calls that differ fail on every rank and name both; the group goes on") {
  run_group(4, [](group& g) {
    std::vector<std::byte> all(4 * 64);
    const size_t bytes = g.rank() == 2 ? 16 : 8;
    const auto outcome =
        g.allgather(std::vector<std::byte>(bytes), std::span(all).first(4 * bytes), soon());
    REQUIRE(!outcome);
    CHECK(outcome.error().status == MORI_E_MISMATCH);
    CHECK(outcome.error().text.find("PE 2 ") != std::string::npos);
    CHECK(outcome.error().text.find("an allgather of 16 bytes") != std::string::npos);
    CHECK(g.barrier(soon()));
    CHECK(g.fault() == nullptr);
    g.leave();
  });
}

TEST_CASE("a deadline names whom it waited for, on every rank") {
  std::atomic<int> timed_out{0};
  run_group(3, [&](group& g) {
    if (g.rank() != 1) {
      const auto outcome = g.barrier(base::deadline::after(200 * base::ns_per_ms));
      REQUIRE(!outcome);
      CHECK(outcome.error().status == MORI_E_TIMEOUT);
      CHECK(outcome.error().text.find(" for PE 1 (pid ") != std::string::npos);
      ++timed_out;
      timed_out.notify_all();
    } else {
      for (int seen = 0; (seen = timed_out.load()) < 2;) timed_out.wait(seen);
      CHECK(g.barrier(soon()).error().status == MORI_E_TIMEOUT);
    }
    CHECK(g.barrier(soon()));  // in step again
    g.leave();
  });
}

TEST_CASE("a descriptor that nobody passes is a timeout on both sides") {
  run_group(3, [](group& g) {
    if (g.rank() != 2) {
      const auto got = g.share_descriptor(0, 0, base::deadline::after(200 * base::ns_per_ms));
      if (g.rank() == 0) {
        REQUIRE(!got);
        CHECK(got.error().status == MORI_E_TIMEOUT);
        CHECK(got.error().text == "PE 2 did not fetch the descriptor in time");
      } else {
        CHECK(got);
      }
    }
    CHECK(g.barrier(soon()));
    if (g.rank() == 2) {
      const auto got = g.share_descriptor(0, 0, base::deadline::after(200 * base::ns_per_ms));
      CHECK(got.error().text == "PE 0 did not pass its descriptor in time");
    }
    CHECK(g.barrier(soon()));
    g.leave();
  });
}

TEST_CASE("abort reaches the others, in calls and handlers, and sticks") {
  run_group(3, [](group& g) {
    fault_watch watch(g);
    if (g.rank() == 1) {
      g.abort("no more tokens");
    } else {
      CHECK(g.barrier(soon()).error().status == MORI_E_ABORTED);
    }
    REQUIRE(watch.wait());
    CHECK(watch.seen[0].status == MORI_E_ABORTED);
    CHECK(watch.seen[0].rank == 1);
    CHECK(watch.seen[0].text ==
          "PE 1 (pid " + std::to_string(::getpid()) + ") aborted: no more tokens");
    REQUIRE(g.fault() != nullptr);
    CHECK(g.fault()->text == watch.seen[0].text);
    CHECK(g.barrier(soon()).error().text == watch.seen[0].text);
    CHECK(g.share_descriptor(g.rank(), 0, soon()).error().status == MORI_E_ABORTED);
    fault_watch late(g);  // at most one handler is ever told
    g.leave();
    CHECK(watch.seen.size() == 1);
    CHECK(late.seen.empty());
  });
}

TEST_CASE("a handler that comes after the fault is told at once") {
  run_group(2, [](group& g) {
    if (g.rank() == 0) g.abort("early");
    CHECK(g.barrier(soon()).error().status == MORI_E_ABORTED);
    fault_watch watch(g);
    CHECK(watch.wait());
    g.leave();
  });
}

TEST_CASE("a rank that goes without a word is dead; one that leaves is reported as such") {
  run_group(4, [](group& g) {
    if (g.rank() == 3) return;  // destroyed
    fault_watch watch(g);
    REQUIRE(watch.wait());
    CHECK(watch.seen[0].rank == 3);
    CHECK(watch.seen[0].status == MORI_E_PEER_DEAD);
    CHECK(watch.seen[0].text.find("closed its connection") != std::string::npos);
    g.leave();
  });
  run_group(6, [](group& g) {
    std::mutex lock;
    std::condition_variable changed;
    std::vector<int> gone;
    CHECK(g.barrier(soon()));
    if (g.rank() == 5) return g.leave();
    g.on_leave([&](int rank) {
      const std::lock_guard guard(lock);
      gone.push_back(rank);
      changed.notify_all();
    });
    {
      std::unique_lock held(lock);
      CHECK(changed.wait_for(held, std::chrono::seconds(5), [&] { return !gone.empty(); }));
      CHECK(gone[0] == 5);
    }
    const auto outcome = g.barrier(soon());
    REQUIRE(!outcome);
    CHECK(outcome.error().status == MORI_E_PEER_DEAD);
    CHECK(outcome.error().text.find("PE 5 (pid ") != std::string::npos);
    CHECK(outcome.error().text.find("has left the group") != std::string::npos);
    CHECK(g.fault() == nullptr);
    g.leave();
  });
}

TEST_CASE("the handlers may end the group themselves") {
  run_group(2, [](group& g) {
    if (g.rank() == 0) return;
    std::mutex lock;
    std::condition_variable changed;
    bool left = false;
    g.on_fault([&](const group_fault&) {
      g.leave();
      const std::lock_guard guard(lock);
      left = true;
      changed.notify_all();
    });
    std::unique_lock held(lock);
    CHECK(changed.wait_for(held, std::chrono::seconds(5), [&] { return left; }));
  });
}

TEST_CASE("two groups at once, and a group in a group's place") {
  std::thread other([] {
    run_group(3, [](group& g) {
      for (int i = 0; i < 50; ++i) CHECK(g.barrier(soon()));
      g.leave();
    });
  });
  run_group(4, [](group& g) {
    for (int i = 0; i < 50; ++i) CHECK(g.barrier(soon()));
    g.leave();
  });
  other.join();
}

TEST_CASE("a fork()ed child gets a status from everything and hangs nowhere" *
          doctest::skip(mori::base::under_tsan)) {
  run_group(2, [](group& g) {
    CHECK(g.barrier(soon()));
    if (g.rank() == 0) {
      const pid_t child = ::fork();
      if (child == 0) {
        bool good = g.barrier(soon()).error().status == MORI_E_STATE;
        good &= g.share_descriptor(0, 0, soon()).error().text == "the group was made before fork()";
        good &= g.fault() != nullptr && g.fault()->status == MORI_E_STATE;
        g.abort("in the child");
        g.leave();
        ::_exit(good ? 0 : 1);
      }
      int how = -1;
      REQUIRE(::waitpid(child, &how, 0) == child);
      CHECK(WIFEXITED(how));
      CHECK(WEXITSTATUS(how) == 0);
    }
    CHECK(g.barrier(soon()));  // the parent's connections were not touched
    g.leave();
    CHECK(g.fault() == nullptr);
  });
}

TEST_CASE("fifty times join and leave: no descriptor and no thread stays behind") {
  const auto cycle = [](int i) {
    run_group(3, [&](group& g) {
      // Some just go, and the others may or may not still be in the barrier.
      const auto outcome = g.barrier(soon());
      if (i % 5 == 0) return;
      CHECK(outcome);
      g.leave();
    });
  };
  cycle(1);
  const size_t descriptors = count_of("/proc/self/fd");
  const size_t threads = count_of("/proc/self/task");
  for (int i = 0; i < 50; ++i) cycle(i);
  CHECK(count_of("/proc/self/fd") == descriptors);
  CHECK(count_of("/proc/self/task") == threads);
}
