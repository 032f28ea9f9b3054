// moe_test.cpp - a program that imports the modules and includes no header of ours: two PEs,
// threads of this process, dispatch a token to each expert and combine. PE p sends token t, all of
// whose elements are 10 * p + t, to expert (p + t) % 2; expert e multiplies by e + 2.
#include <array>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <thread>
#include <vector>

import mori.shmem;
import mori.ep;

namespace {

constexpr int pe_count = 2;
constexpr std::size_t token_count = 2;
constexpr std::size_t hidden = 4;

// Returns what went wrong, or nothing. `value()` throws mori::exception.
std::string run_layer(mori::shmem::context& pe, int number) {
  auto config = mori::ep::config();
  config.hidden_dim = hidden;
  config.max_input_token_count = token_count;
  config.expert_per_rank_count = 1;
  config.expert_per_token_count = 1;
  auto op = mori::ep::op::create(pe, config).value();

  std::array<float, token_count * hidden> tokens{};
  std::array<std::int32_t, token_count> experts{};
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<float>(10 * number + static_cast<int>(i / hidden));
  for (std::size_t t = 0; t < token_count; ++t)
    experts[t] = (number + static_cast<int>(t)) % pe_count;

  const auto received =
      op.dispatch<float>({.dtype = MORI_EP_F32, .rows = tokens, .indices = experts}).value();
  if (received.count != token_count) return "received " + std::to_string(received.count);
  std::vector<float> outputs(received.rows.begin(), received.rows.end());
  for (float& value : outputs) value *= static_cast<float>(number + 2);
  const auto combined =
      op.combine<float>({.dtype = MORI_EP_F32, .rows = outputs, .indices = experts}).value();
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (combined.rows[i] != tokens[i] * static_cast<float>(experts[i / hidden] + 2))
      return "value " + std::to_string(i) + " is " + std::to_string(combined.rows[i]);
  pe.barrier_all().value();
  return {};
}

std::string run_pe(const mori::shmem::unique_id& id, int number) {
  try {
    auto options = mori::shmem::options(number, pe_count);
    options.heap_bytes = 1 << 20;
    auto pe = mori::shmem::context::create(id, options).value();
    return run_layer(pe, number);
  } catch (const mori::exception& e) {
    return e.what();
  }
}

bool check(bool good, const char* what) {
  std::printf("%s - %s\n", good ? "ok" : "not ok", what);
  return good;
}

}  // namespace

int main() {
  const auto id = mori::shmem::make_unique_id().value();
  std::array<std::string, pe_count> outcomes;
  {
    std::vector<std::jthread> threads;
    for (int number = 0; number < pe_count; ++number)
      threads.emplace_back([&, number] { outcomes[number] = run_pe(id, number); });
  }
  bool good = true;
  for (const std::string& outcome : outcomes) {
    if (!outcome.empty()) std::printf("  %s\n", outcome.c_str());
    good &= check(outcome.empty(), "dispatch and combine by import");
  }
  const auto refused = mori::shmem::context::create(id, mori::shmem::options(0, 0));
  good &= check(refused.status() == MORI_E_INVALID && !refused.error().message.empty(),
                "a mistake is a status and a message");
  good &= check(mori_ep_abi_level() >= 1, "C names come along");
  return good ? 0 : 1;
}
