// engine_soak.cpp - hours of use in little: two engines of this process over TCP and shared
// memory, under transfers of all kinds, cancels, broken connections, sessions and regions
// that come and go, and whole engines that end and start. Memory, threads and
// descriptors of the process must stay what they were after the first part.
//
//   usage: engine_soak [SECONDS]      else MORI_SOAK_SECONDS, else 20
#include <dirent.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mori/io.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr uint64_t second_ns = 1'000'000'000;
constexpr uint64_t region_bytes = 4 << 20;

[[noreturn]] void give_up(const char* what, const mori_error& error) {
  std::printf("not ok - %s: %s\n", what, error.message);
  std::fflush(stdout);
  std::_Exit(1);
}

#define MUST(call)                                \
  do {                                            \
    mori_error error = MORI_ERROR_INIT;           \
    if ((call) != MORI_OK) give_up(#call, error); \
  } while (0)

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * second_ns + static_cast<uint64_t>(now.tv_nsec);
}

size_t entries_of(const char* folder) {
  size_t count = 0;
  DIR* const open = opendir(folder);
  while (open != nullptr && readdir(open) != nullptr) ++count;
  if (open != nullptr) closedir(open);
  return count;
}

struct footprint {
  uint64_t resident_kib = 0;
  size_t threads = 0, descriptors = 0;
};

footprint look() {
  footprint seen;
  FILE* const from = std::fopen("/proc/self/statm", "r");
  unsigned long total = 0, resident = 0;
  if (from != nullptr && std::fscanf(from, "%lu %lu", &total, &resident) == 2)
    seen.resident_kib = resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) / 1024;
  if (from != nullptr) std::fclose(from);
  seen.threads = entries_of("/proc/self/task");
  seen.descriptors = entries_of("/proc/self/fd");
  return seen;
}

std::vector<uint8_t> packed(const mori_io* io) {
  uint64_t bytes = 0;
  MUST(mori_io_desc(io, nullptr, &bytes, &error));
  std::vector<uint8_t> made(bytes);
  MUST(mori_io_desc(io, made.data(), &bytes, &error));
  return made;
}
std::vector<uint8_t> packed(const mori_io* io, uint32_t region) {
  uint64_t bytes = 0;
  MUST(mori_io_memory_desc(io, region, nullptr, &bytes, &error));
  std::vector<uint8_t> made(bytes);
  MUST(mori_io_memory_desc(io, region, made.data(), &bytes, &error));
  return made;
}

struct node {
  mori_io* io = nullptr;
  void* memory = nullptr;
  uint32_t region = 0;
};

node make_node(const char* key) {
  node made;
  mori_io_options with{};
  with.struct_size = sizeof with;
  with.in_key = key;
  with.in_host = "127.0.0.1";
  with.inbound_count = 4096;
  MUST(mori_io_create(&with, &made.io, &error));
  for (const int32_t each : {MORI_IO_BACKEND_TCP, MORI_IO_BACKEND_XGMI})
    MUST(mori_io_backend_create(made.io, each, nullptr, &error));
  MUST(mori_io_alloc(made.io, region_bytes, &made.memory, &error));
  MUST(mori_io_memory_register(made.io, made.memory, region_bytes, MORI_IO_LOCATION_CPU, -1, 0,
                               &made.region, &error));
  return made;
}

void end_node(node& what) {
  MUST(mori_io_memory_deregister(what.io, what.region, &error));
  MUST(mori_io_free(what.io, what.memory, &error));
  mori_io_destroy(what.io);
}

void know(const node& one, const node& other) {
  const auto desc = packed(other.io);
  MUST(mori_io_remote_register(one.io, desc.data(), desc.size(), &error));
}

mori_io_session* join(const node& one, const node& other, int32_t backend) {
  const auto desc = packed(other.io, other.region);
  mori_io_session_options with{};
  with.struct_size = sizeof with;
  with.backend = backend;
  mori_io_session* made = nullptr;
  MUST(mori_io_session_create(one.io, one.region, desc.data(), desc.size(), &with, &made, &error));
  return made;
}

void break_one_connection(std::mt19937_64& random) {
  for (int tries = 0; tries < 64; ++tries) {
    const int fd = 3 + static_cast<int>(random() % 64);
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.ss_family != AF_INET && peer.ss_family != AF_INET6) continue;
    shutdown(fd, SHUT_RDWR);
    return;
  }
}

// Counts of what was done.
struct tally {
  uint64_t transfers = 0, cancelled = 0, broken = 0, sessions = 0, engines = 0;
};

// Transfers in flight together, of any kind; some are cancelled. Ends with none in flight.
void burst(mori_io_session* on, std::mt19937_64& random, tally& to) {
  std::vector<mori_io_transfer*> flying;
  for (int i = 0; i < 32; ++i) {
    const size_t pieces = random() % 8 == 0 ? 1 + random() % 128 : 1;
    const uint64_t most = pieces > 1 ? 16384 : random() % 6 == 0 ? region_bytes : 70'000;
    std::vector<uint64_t> local, remote, sizes;
    for (size_t k = 0; k < pieces; ++k) {
      const uint64_t bytes = random() % (most + 1);
      local.push_back(random() % (region_bytes - bytes + 1));
      remote.push_back(random() % (region_bytes - bytes + 1));
      sizes.push_back(bytes);
    }
    mori_io_request what{};
    what.struct_size = sizeof what;
    what.operation = random() % 3 == 0 ? MORI_IO_READ : MORI_IO_WRITE;
    what.piece_count = pieces;
    what.in_local_offsets = local.data();
    what.in_remote_offsets = remote.data();
    what.in_sizes_bytes = sizes.data();
    what.uid = random();
    what.disable_notification = random() % 2 == 0 ? 1 : 0;
    mori_io_transfer* made = nullptr;
    MUST(mori_io_submit(on, &what, &made, &error));
    flying.push_back(made);
    if (random() % 24 == 0) {
      MUST(mori_io_transfer_cancel(made, &error));
      ++to.cancelled;
    }
    ++to.transfers;
  }
  for (mori_io_transfer* each : flying) {
    mori_error error = MORI_ERROR_INIT;
    const mori_status status = mori_io_transfer_wait(&each, 1, 30 * second_ns, &error);
    if (status != MORI_OK && status != MORI_E_CANCELLED) give_up("a transfer", error);
    mori_io_transfer_release(each);
  }
}

void use(node& a, node& b, std::mt19937_64& random, tally& to) {
  mori_io_session* sessions[] = {join(a, b, MORI_IO_BACKEND_TCP), join(a, b, MORI_IO_BACKEND_XGMI),
                                 join(b, a, MORI_IO_BACKEND_TCP), join(b, a, MORI_IO_BACKEND_AUTO)};
  to.sessions += 4;
  for (int round = 0; round < 40; ++round) {
    if (round % 10 == 9) {
      break_one_connection(random);
      ++to.broken;
    }
    burst(sessions[round % 4], random, to);
  }
  for (mori_io_session* each : sessions) mori_io_session_destroy(each);
  // Regions come and go under the same engines.
  std::vector<uint8_t> more(4096);
  for (int i = 0; i < 20; ++i) {
    uint32_t id = 0;
    MUST(mori_io_memory_register(b.io, more.data(), more.size(), MORI_IO_LOCATION_CPU, -1, 0, &id,
                                 &error));
    MUST(mori_io_memory_deregister(b.io, id, &error));
  }
}

// One life of two engines.
void live(std::mt19937_64& random, tally& to) {
  node a = make_node("a"), b = make_node("b");
  know(a, b);
  know(b, a);
  for (int i = 0; i < 3; ++i) use(a, b, random, to);
  end_node(a);
  end_node(b);
  to.engines += 2;
}

double seconds_wanted(int count, char** arguments) {
  const char* const said = std::getenv("MORI_SOAK_SECONDS");
  const double wanted = count > 1 ? std::atof(arguments[1]) : said != nullptr ? std::atof(said) : 0;
  return wanted > 0 ? wanted : 20;
}

}  // namespace

int main(int count, char** arguments) {
  const double seconds = seconds_wanted(count, arguments);
  const char* const given = std::getenv("MORI_TEST_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::mt19937_64 random(seed);
  tally done;
  const uint64_t begin = now_ns();
  const auto passed_s = [&] { return static_cast<double>(now_ns() - begin) / 1e9; };
  // A third of the time, at most a minute, is warm-up: pools and caches grow to what they need.
  while (passed_s() < std::min(seconds / 3, 60.0)) live(random, done);
  const footprint before = look();
  footprint most = before;
  while (passed_s() < seconds) {
    live(random, done);
    const footprint now = look();
    most.resident_kib = std::max(most.resident_kib, now.resident_kib);
    most.threads = std::max(most.threads, now.threads);
    most.descriptors = std::max(most.descriptors, now.descriptors);
  }
  const footprint after = look();
  std::printf(
      "soak: %.0f s, seed %llu: %llu transfers, %llu cancelled, %llu connections broken, "
      "%llu sessions, %llu engines\n",
      passed_s(), static_cast<unsigned long long>(seed),
      static_cast<unsigned long long>(done.transfers),
      static_cast<unsigned long long>(done.cancelled), static_cast<unsigned long long>(done.broken),
      static_cast<unsigned long long>(done.sessions),
      static_cast<unsigned long long>(done.engines));
  std::printf(
      "resident: %llu KiB after warm-up, %llu at most, %llu at the end; "
      "threads %zu, %zu; descriptors %zu, %zu\n",
      static_cast<unsigned long long>(before.resident_kib),
      static_cast<unsigned long long>(most.resident_kib),
      static_cast<unsigned long long>(after.resident_kib), before.threads, after.threads,
      before.descriptors, after.descriptors);
  // The allocator's own share: a few MiB that do not grow with the number of engines.
  const bool is_flat = most.resident_kib <= before.resident_kib + 8 * 1024 &&
                       most.threads == before.threads && most.descriptors == before.descriptors;
  std::printf("%s - memory, threads and descriptors stay flat\n", is_flat ? "ok" : "not ok");
  return is_flat ? 0 : 1;
}
