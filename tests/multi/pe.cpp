// pe.cpp - one PE process that does what its driver says: it reads a command a line from standard
// input and answers `STATUS MILLISECONDS TEXT`. It binds to the C headers alone. The driver
// (processes.py) decides who does what and when somebody is killed; the commands are the table at
// the end of this file. It ends with its driver, and after its lifetime in any case.
//
// usage: pe CONTROL_FILE GATE_PIPE LIFETIME_SECONDS
#include <mori/ep.h>
#include <mori/shmem.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "gate.hpp"
#include "layer.hpp"
#include "traffic.hpp"

namespace multi {
namespace {

constexpr uint64_t ns_per_ms = 1'000'000;

struct member {
  mori_shmem* shmem = nullptr;
  int pe = 0;
  int pe_count = 0;
  std::vector<std::pair<void*, uint64_t>> allocations;
  layer moe;
  traffic load;
};

struct answer {
  mori_status status = MORI_OK;
  std::string text;
};

std::array<member, 8> members;

// The words after a command's name: a slot, then what the command wants.
class words {
 public:
  explicit words(const std::string& line) : in_(line) { in_ >> name_; }
  const std::string& name() const { return name_; }
  std::string text() {
    std::string word;
    in_ >> word;
    return word;
  }
  uint64_t number() {
    const std::string word = text();
    uint64_t value = 0;
    std::from_chars(word.data(), word.data() + word.size(), value);
    return value;
  }
  member& slot() { return members[number() % members.size()]; }
  // The rest: KEY=NUMBER ...
  std::map<std::string, uint64_t> options() {
    std::map<std::string, uint64_t> all;
    for (std::string word = text(); !word.empty(); word = text()) {
      const size_t at = word.find('=');
      if (at == std::string::npos) continue;
      std::from_chars(word.data() + at + 1, word.data() + word.size(), all[word.substr(0, at)]);
    }
    return all;
  }

 private:
  std::istringstream in_;
  std::string name_;
};

answer outcome(mori_status status, const mori_error& error, const std::string& success = "") {
  return {status, status == MORI_OK ? success : error.message};
}

answer make_id(words&) {
  mori_error error = MORI_ERROR_INIT;
  mori_shmem_unique_id id;
  const mori_status status = mori_shmem_unique_id_create(&id, &error);
  std::string hex;
  for (const uint8_t byte : id.bytes) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", byte);
    hex += digits.data();
  }
  return outcome(status, error, hex);
}

answer create(words& in) {
  member& m = in.slot();
  const std::string hex = in.text();
  mori_shmem_unique_id id{};
  for (size_t i = 0; i < sizeof id.bytes && 2 * i + 2 <= hex.size(); ++i)
    std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, id.bytes[i], 16);
  m.pe = static_cast<int>(in.number());
  m.pe_count = static_cast<int>(in.number());
  auto given = in.options();
  mori_shmem_options options{};
  options.struct_size = sizeof options;
  options.pe = m.pe;
  options.pe_count = m.pe_count;
  options.heap_bytes = given["heap_mib"] << 20;
  options.bootstrap_timeout_ns = given["boot_ms"] * ns_per_ms;
  options.wait_timeout_ns = given["wait_ms"] * ns_per_ms;
  options.heartbeat_timeout_ns = given["beat_ms"] * ns_per_ms;
  // One thread runs a PE's kernels, so that a gate stops all of the PE.
  options.worker_count = 1;
  mori_error error = MORI_ERROR_INIT;
  const mori_status status = mori_shmem_create(&id, &options, &m.shmem, &error);
  return outcome(status, error);
}

answer destroy(words& in) {
  member& m = in.slot();
  m.moe.destroy();
  m.allocations.clear();
  m.load.reset();
  mori_shmem_destroy(m.shmem);
  m.shmem = nullptr;
  return {};
}

answer check(words& in) {
  mori_error error = MORI_ERROR_INIT;
  const mori_status status = mori_shmem_check(in.slot().shmem, &error);
  return outcome(status, error);
}

answer abort_context(words& in) {
  mori_error error = MORI_ERROR_INIT;
  const mori_status status = mori_shmem_abort(in.slot().shmem, &error);
  return outcome(status, error);
}

answer barrier(words& in) {
  mori_error error = MORI_ERROR_INIT;
  const mori_status status = mori_shmem_barrier_all(in.slot().shmem, &error);
  return outcome(status, error);
}

answer allocate(words& in) {
  member& m = in.slot();
  const uint64_t bytes = in.number();
  void* pointer = nullptr;
  mori_error error = MORI_ERROR_INIT;
  const mori_status status = mori_shmem_malloc(m.shmem, bytes, &pointer, &error);
  if (status == MORI_OK) m.allocations.emplace_back(pointer, bytes);
  return outcome(status, error);
}

answer free_last(words& in) {
  member& m = in.slot();
  if (m.allocations.empty()) return {MORI_E_STATE, "nothing allocated"};
  mori_error error = MORI_ERROR_INIT;
  const mori_status status = mori_shmem_free(m.shmem, m.allocations.back().first, &error);
  m.allocations.pop_back();
  return outcome(status, error);
}

// Touches every page of the last allocation.
answer fill(words& in) {
  member& m = in.slot();
  if (m.allocations.empty()) return {MORI_E_STATE, "nothing allocated"};
  std::memset(m.allocations.back().first, 0x5a, m.allocations.back().second);
  return {};
}

// Puts a word to a PE's last allocation, reads it back.
answer put(words& in) {
  member& m = in.slot();
  const auto pe = static_cast<int32_t>(in.number());
  if (m.allocations.empty()) return {MORI_E_STATE, "nothing allocated"};
  auto* target = static_cast<uint64_t*>(m.allocations.back().first) + m.pe;
  const uint64_t value = 1000 + static_cast<uint64_t>(m.pe);
  uint64_t seen = 0;
  mori_error error = MORI_ERROR_INIT;
  mori_status status = mori_shmem_put(m.shmem, target, &value, sizeof value, pe, &error);
  if (status == MORI_OK) status = mori_shmem_quiet(m.shmem, &error);
  if (status == MORI_OK) status = mori_shmem_get(m.shmem, &seen, target, sizeof seen, pe, &error);
  return outcome(status, error, std::to_string(seen));
}

// "TRANSPORT mapped|unmapped REASON" of one PE.
answer peer(words& in) {
  member& m = in.slot();
  const auto pe = static_cast<int32_t>(in.number());
  mori_shmem_peer_report report{};
  report.struct_size = sizeof report;
  mori_error error = MORI_ERROR_INIT;
  mori_status status = mori_shmem_peer_info(m.shmem, pe, &report, &error);
  void* pointer = nullptr;
  if (status == MORI_OK && !m.allocations.empty())
    status = mori_shmem_ptr_p2p(m.shmem, m.allocations.back().first, pe, &pointer, &error);
  return outcome(status, error,
                 std::to_string(report.transport) +
                     (pointer != nullptr ? " mapped " : " unmapped ") + report.reason);
}

answer make_layer(words& in) {
  member& m = in.slot();
  layer_shape shape;
  shape.pe = m.pe;
  shape.pe_count = m.pe_count;
  shape.hidden = in.number();
  shape.max_token_count = in.number();
  shape.receive_cap = in.number();
  mori_error error = MORI_ERROR_INIT;
  const mori_status status = m.moe.create(m.shmem, shape, &error);
  return outcome(status, error);
}

// tokens SLOT TARGET+1 COUNT_OF_PE_0 COUNT_OF_PE_1 ...
answer tokens(words& in) {
  member& m = in.slot();
  const int target = static_cast<int>(in.number()) - 1;
  std::vector<uint64_t> counts;
  while (static_cast<int>(counts.size()) < m.pe_count) counts.push_back(in.number());
  m.moe.set_tokens(counts, target);
  return {};
}

std::string tally(const layer& moe) {
  return "received=" + std::to_string(moe.received_count()) +
         " wrong=" + std::to_string(moe.wrong_count());
}

answer dispatch(words& in) {
  layer& moe = in.slot().moe;
  mori_error error = MORI_ERROR_INIT;
  const mori_status status = moe.dispatch(&error);
  return outcome(status, error, tally(moe));
}

answer combine(words& in) {
  layer& moe = in.slot().moe;
  mori_error error = MORI_ERROR_INIT;
  const mori_status status = moe.combine(&error);
  return outcome(status, error, tally(moe));
}

// loop SLOT COUNT: dispatch and combine until one fails, or COUNT of them.
// The text of a failure begins with the call and the tally.
answer loop(words& in) {
  member& m = in.slot();
  const uint64_t count = in.number();
  mori_error error = MORI_ERROR_INIT;
  const auto failed = [&](const char* call, mori_status status) {
    return answer{status, std::string(call) + " " + tally(m.moe) + ": " + error.message};
  };
  for (uint64_t i = 0; i < count; ++i) {
    if (const auto status = m.moe.dispatch(&error); status != MORI_OK)
      return failed("dispatch", status);
    if (const auto status = m.moe.combine(&error); status != MORI_OK)
      return failed("combine", status);
    control().round_count.fetch_add(1);
  }
  return {MORI_OK, tally(m.moe)};
}

// traffic SLOT open | sizes | random SEED ROUNDS OPERATIONS | hammer PE COUNT | burst PE COUNT
answer make_traffic(words& in) {
  member& m = in.slot();
  const std::string what = in.text();
  mori_error error = MORI_ERROR_INIT;
  if (what == "open") return outcome(m.load.open(m.shmem, m.pe, m.pe_count, &error), error);
  traffic::outcome done{MORI_E_INVALID, ""};
  const uint64_t first = in.number(), second = in.number(), third = in.number();
  if (what == "sizes") done = m.load.sizes(&error);
  if (what == "random") done = m.load.random(first, second, third, &error);
  if (what == "hammer") done = m.load.hammer(static_cast<int>(first), second, &error);
  if (what == "burst") done = m.load.burst(static_cast<int>(first), second, &error);
  return outcome(done.status, error, done.text);
}

answer gate(words& in) {
  static const std::map<std::string, place> places = {
      {"none", place::none},
      {"routing", place::routing},
      {"first_row", place::first_row},
      {"middle_row", place::middle_row},
      {"receiver", place::receiver},
      {"expert_rows", place::expert_rows},
      {"routing_again", place::routing_again},
      {"gather", place::gather},
  };
  member& m = in.slot();
  const auto found = places.find(in.text());
  if (found == places.end()) return {MORI_E_INVALID, "no such gate"};
  m.moe.stop_at(found->second);
  return {};
}

// What a child of this process is told by the library: its calls on the parent's handles, and
// whether it can have a group of its own.
answer in_child(words& in) {
  member& m = in.slot();
  const pid_t child = fork();
  if (child == 0) {
    mori_error error = MORI_ERROR_INIT;
    void* pointer = nullptr;
    int bad = mori_shmem_barrier_all(m.shmem, &error) == MORI_E_STATE ? 0 : 1;
    bad += mori_shmem_malloc(m.shmem, 64, &pointer, &error) == MORI_E_STATE ? 0 : 2;
    mori_ep_dispatch_args args{};
    args.struct_size = sizeof args;
    bad += m.moe.exists() && m.moe.dispatch(&error) != MORI_E_STATE ? 4 : 0;
    mori_shmem_destroy(m.shmem);
    mori_shmem_unique_id id;
    mori_shmem_options options{};
    options.struct_size = sizeof options;
    options.pe_count = 1;
    options.heap_bytes = 1 << 20;
    mori_shmem* own = nullptr;
    bad += mori_shmem_unique_id_create(&id, &error) == MORI_OK ? 0 : 8;
    bad += mori_shmem_create(&id, &options, &own, &error) == MORI_OK ? 0 : 16;
    bad += mori_shmem_barrier_all(own, &error) == MORI_OK ? 0 : 32;
    mori_shmem_destroy(own);
    _exit(bad);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return {MORI_E_OS, "no child"};
  return {MORI_OK, WIFEXITED(status) ? std::to_string(WEXITSTATUS(status))
                                     : "signal " + std::to_string(WTERMSIG(status))};
}

using command = answer (*)(words&);

const std::map<std::string, command> commands = {
    {"id", make_id},          {"create", create},    {"destroy", destroy},
    {"check", check},         {"barrier", barrier},  {"malloc", allocate},
    {"free", free_last},      {"fill", fill},        {"put", put},
    {"peer", peer},           {"layer", make_layer}, {"tokens", tokens},
    {"dispatch", dispatch},   {"combine", combine},  {"loop", loop},
    {"gate", gate},           {"fork", in_child},    {"traffic", make_traffic},
    {"abort", abort_context},
};

void serve() {
  for (std::string line; std::getline(std::cin, line) && line != "exit";) {
    words in(line);
    const auto found = commands.find(in.name());
    if (found == commands.end()) {
      std::printf("%d 0 no such command: %s\n", MORI_E_INVALID, line.c_str());
    } else {
      const auto began = std::chrono::steady_clock::now();
      control().call_count.fetch_add(1);
      const answer said = found->second(in);
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - began;
      std::printf("%d %.1f %s\n", said.status, took.count(), said.text.c_str());
    }
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace multi

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: pe CONTROL_FILE GATE_PIPE LIFETIME_SECONDS\n");
    return 2;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(static_cast<unsigned>(std::strtoul(argv[3], nullptr, 10)));
  if (!multi::open_control(argv[1], std::atoi(argv[2]))) {
    std::perror("control file");
    return 2;
  }
  multi::serve();
  return 0;
}
