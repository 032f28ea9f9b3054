// Tests of an operator's life and of its calls one by one: create and its
// agreement, phases, faults in the data, and that the operator stays usable.
#include "moe_call.hpp"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <cstdlib>

using namespace ep_test;

namespace {

// H = 16, M = 8, E = 2, K = 2.
mori_ep_config small_config() {
  mori_ep_config c{};
  c.struct_size = sizeof c;
  c.hidden_dim = 16;
  c.max_input_token_count = 8;
  c.expert_per_rank_count = 2;
  c.expert_per_token_count = 2;
  return c;
}

constexpr call_shape small_call{MORI_EP_F32, 16, false, false, false};

// token_count tokens, all with the same two ids.
ref::source tokens_to(engine& random, uint64_t token_count, int32_t first, int32_t second) {
  ref::source from;
  from.token_count = token_count;
  from.rows.resize(token_count * 64);
  for (std::byte& each : from.rows) each = static_cast<std::byte>(random());
  for (uint64_t i = 0; i < token_count; ++i)
    from.indices.insert(from.indices.end(), {first, second});
  return from;
}

dispatch_case case_of(const mori_ep_config& config, std::vector<ref::source> ranks,
                      const call_shape& with = small_call) {
  dispatch_case c;
  c.with = with;
  c.shape = shape_of(config, static_cast<int>(ranks.size()), with);
  c.ranks = std::move(ranks);
  expect_again(c);
  return c;
}

uint64_t used_bytes(mori_shmem* context) {
  mori_shmem_report info{};
  info.struct_size = sizeof info;
  REQUIRE(failure(mori_shmem_info, context, &info) == "");
  return info.used_bytes;
}

// Result of mori_ep_create on each rank with that rank's config; nothing is kept.
std::vector<std::string> create_each(rank_group& group,
                                     const std::vector<mori_ep_config>& configs) {
  std::vector<std::string> all(configs.size());
  group.each([&](int rank) {
    const auto i = static_cast<size_t>(rank);
    mori_ep* ep = nullptr;
    all[i] = failure(mori_ep_create, group.context(rank), &configs[i], &ep);
    mori_ep_destroy(ep);
  });
  return all;
}

void check_round_trip(operators& ops, const mori_ep_config& config, engine& random) {
  const dispatch_case c = random_dispatch(random, config, ops.group().count(), small_call);
  CHECK(difference(c, dispatch_all(ops, c, random)) == "");
  const combine_case back = random_combine(random, c, small_call);
  CHECK(difference(back, combine_all(ops, c, back, random)) == "");
}

}  // namespace

TEST_CASE("identity") {
  CHECK(mori_ep_version() == MORI_VERSION_PACK(0, 1, 0));
  CHECK(mori_ep_abi_level() == 1);
  CHECK(std::string(mori_ep_status_name(MORI_E_OVERFLOW)) == "MORI_E_OVERFLOW");
  CHECK(std::string(mori_ep_status_name(999)) == "MORI_E_?");
}

TEST_CASE("memory_query is what create takes and destroy gives back") {
  rank_group group({.rank_count = 2});
  for (const int32_t registered : {0, 1})
    for (const uint64_t cap : {0u, 6u}) {
      mori_ep_config config = small_config();
      config.registered_input = registered;
      config.max_total_recv_token_count = cap;
      config.scale_dim = 3;
      config.scale_elem_bytes = 4;
      mori_ep_memory memory{};
      memory.struct_size = sizeof memory;
      REQUIRE(failure(mori_ep_memory_query, &config, 2, &memory) == "");
      CHECK(memory.recv_token_capacity_count == (cap == 0 ? 16 : 6));
      const uint64_t before = used_bytes(group.context(0));
      {
        operators ops(group, config);
        for (int rank = 0; rank < 2; ++rank)
          CHECK(used_bytes(group.context(rank)) == before + memory.symmetric_bytes);
        // The buffer of a later call: R rows more, once.
        const uint64_t rows = memory.recv_token_capacity_count * 64;
        group.each([&](int rank) {
          void* buffer = nullptr;
          uint64_t size_bytes = 0;
          for (int times = 0; times < 2; ++times)
            CHECK(failure(mori_ep_combine_buffer, ops[rank], &buffer, &size_bytes) == "");
          CHECK(size_bytes == rows);
        });
        const uint64_t later = registered == 1 ? 0 : (rows + 255) / 256 * 256;
        CHECK(used_bytes(group.context(1)) == before + memory.symmetric_bytes + later);
      }
      CHECK(used_bytes(group.context(0)) == before);
    }
}

TEST_CASE("create: configs that differ are a mismatch on all ranks") {
  rank_group group({.rank_count = 3});
  const uint64_t before = used_bytes(group.context(0));
  std::vector<mori_ep_config> configs(3, small_config());
  configs[1].hidden_dim = 32;
  auto got = create_each(group, configs);
  CHECK(got[0] == "MORI_E_MISMATCH: configs differ: hidden_dim is 16 here and 32 on rank 1");
  CHECK(got[1] == "MORI_E_MISMATCH: configs differ: hidden_dim is 32 here and 16 on rank 0");
  CHECK(got[2] == got[0]);

  // One that is refused says so to all.
  configs[1].hidden_dim = 5;
  got = create_each(group, configs);
  CHECK(got[0] == "MORI_E_MISMATCH: rank 1 refused its config (MORI_E_INVALID), this rank did not");
  CHECK(begins_with(got[1], "MORI_E_INVALID: hidden_dim 5"));
  configs[1].kernel_type = MORI_EP_KERNEL_ASYNC_LL;
  CHECK(begins_with(create_each(group, configs)[1], "MORI_E_UNSUPPORTED: kernel_type 4"));
  configs[1].struct_size = 3;
  got = create_each(group, configs);
  CHECK(begins_with(got[1], "MORI_E_INVALID: mori_ep_config.struct_size is 3"));
  CHECK(begins_with(got[2], "MORI_E_MISMATCH: rank 1"));

  CHECK(used_bytes(group.context(0)) == before);
  mori_ep* ep = nullptr;
  CHECK(begins_with(failure(mori_ep_create, static_cast<mori_shmem*>(nullptr), &configs[0], &ep),
                    "MORI_E_STATE"));
  CHECK(begins_with(
      failure(mori_ep_create, group.context(0), &configs[0], static_cast<mori_ep**>(nullptr)),
      "MORI_E_INVALID: out_ep is NULL"));
  engine random(1);
  operators ops(group, configs[0]);
  check_round_trip(ops, configs[0], random);
}

TEST_CASE("create: a heap that is too small is a status on all ranks") {
  rank_group group({.rank_count = 2, .heap_bytes = 1 << 20});
  mori_ep_config config = small_config();
  config.max_input_token_count = 100'000;
  const auto got = create_each(group, {config, config});
  for (const std::string& text : got) {
    CHECK(begins_with(text, "MORI_E_NO_MEMORY: the operator needs "));
    CHECK(text.find("of the symmetric heap: ") != std::string::npos);
  }
  CHECK(create_each(group, {small_config(), small_config()}) == std::vector<std::string>(2, ""));
}

TEST_CASE("MORI_CHECK: sync, or nothing") {
  rank_group group({.rank_count = 2});
  const std::vector<mori_ep_config> configs(2, small_config());
  for (const char* good : {"sync", ""}) {
    setenv("MORI_CHECK", good, 1);
    CHECK(create_each(group, configs) == std::vector<std::string>(2, ""));
  }
  setenv("MORI_CHECK", "async", 1);
  const std::vector<std::string> refused(
      2, "MORI_E_INVALID: MORI_CHECK is \"async\", allowed are \"sync\" and nothing");
  CHECK(create_each(group, configs) == refused);
  unsetenv("MORI_CHECK");
  CHECK(create_each(group, configs) == std::vector<std::string>(2, ""));
}

TEST_CASE("phases: combine needs a dispatch, and reset forgets it") {
  rank_group group({.rank_count = 2});
  const mori_ep_config config = small_config();
  operators ops(group, config);
  engine random(2);
  const dispatch_case c = random_dispatch(random, config, 2, small_call);
  const combine_case back = random_combine(random, c, small_call);
  const std::string too_early = "MORI_E_STATE: combine without a dispatch before it";
  uint64_t count = 0;
  for (int times = 0; times < 2; ++times) {
    for (const combined& each : combine_all(ops, c, back, random)) CHECK(each.failed == too_early);
    CHECK(begins_with(failure(mori_ep_src_token_positions, ops[0], static_cast<int32_t*>(nullptr),
                              uint64_t{0}, &count),
                      "MORI_E_STATE"));
    CHECK(difference(c, dispatch_all(ops, c, random)) == "");
    CHECK(failure(mori_ep_src_token_positions, ops[0], static_cast<int32_t*>(nullptr), uint64_t{0},
                  &count) == "");
    CHECK(count == c.expected[0].row_count);
    CHECK(failure(mori_ep_src_token_positions, ops[0], static_cast<int32_t*>(nullptr), uint64_t{1},
                  &count) == "MORI_E_INVALID: out_positions is NULL");
    CHECK(difference(back, combine_all(ops, c, back, random)) == "");
    group.each([&](int rank) { CHECK(failure(mori_ep_reset, ops[rank]) == ""); });
  }
}

TEST_CASE("dead and foreign handles answer MORI_E_STATE") {
  rank_group group({.rank_count = 1});
  const mori_ep_config config = small_config();
  mori_ep* ep = nullptr;
  REQUIRE(failure(mori_ep_create, group.context(0), &config, &ep) == "");
  CHECK(failure(mori_ep_check, ep) == "");
  mori_ep_destroy(ep);
  CHECK(begins_with(failure(mori_ep_check, ep), "MORI_E_STATE"));
  CHECK(begins_with(failure(mori_ep_reset, ep), "MORI_E_STATE"));
  mori_ep_destroy(ep);
  mori_ep_destroy(nullptr);
  CHECK(begins_with(failure(mori_ep_check, static_cast<mori_ep*>(nullptr)), "MORI_E_STATE"));
  CHECK(begins_with(failure(mori_ep_check, reinterpret_cast<mori_ep*>(group.context(0))),
                    "MORI_E_STATE"));
}

TEST_CASE("an operator whose context is gone answers MORI_E_STATE") {
  mori_shmem_unique_id id{};
  REQUIRE(failure(mori_shmem_unique_id_create, &id) == "");
  mori_shmem_options alone{};
  alone.struct_size = sizeof alone;
  alone.pe_count = 1;
  alone.heap_bytes = 4 << 20;
  mori_shmem* context = nullptr;
  REQUIRE(failure(mori_shmem_create, &id, &alone, &context) == "");
  const mori_ep_config config = small_config();
  mori_ep* ep = nullptr;
  REQUIRE(failure(mori_ep_create, context, &config, &ep) == "");
  mori_shmem_destroy(context);
  CHECK(begins_with(failure(mori_ep_check, ep), "MORI_E_STATE"));
  mori_ep_dispatch_args args{};
  args.struct_size = sizeof args;
  args.dtype = MORI_EP_F32;
  mori_ep_dispatch_result result{};
  result.struct_size = sizeof result;
  CHECK(begins_with(failure(mori_ep_dispatch, ep, &args, &result), "MORI_E_STATE"));
  mori_ep_destroy(ep);
}

TEST_CASE("receive cap: hit exactly, exceeded by one on one rank, and usable after") {
  rank_group group({.rank_count = 3});
  mori_ep_config config = small_config();
  config.max_total_recv_token_count = 9;
  operators ops(group, config);
  engine random(3);
  // Ids 2 and 3 live on rank 1. Each rank's share of the cap is 3, together 9.
  const auto three_each = [&](uint64_t last) {
    return case_of(config, {tokens_to(random, 3, 2, -1), tokens_to(random, 3, 3, 2),
                            tokens_to(random, last, 2, 2)});
  };
  for (int times = 0; times < 3; ++times) {
    const dispatch_case full = three_each(3);
    CHECK(full.expected[1].row_count == 9);
    CHECK(difference(full, dispatch_all(ops, full, random)) == "");
    const combine_case back = random_combine(random, full, small_call);
    CHECK(difference(back, combine_all(ops, full, back, random)) == "");

    const dispatch_case over = three_each(4);
    for (const dispatched& each : dispatch_all(ops, over, random))
      CHECK(each.failed ==
            "MORI_E_OVERFLOW: rank 1 would receive 10 tokens, the capacity is 9 "
            "(max_total_recv_token_count); nothing was sent");
    for (const combined& each : combine_all(ops, over, back, random))
      CHECK(begins_with(each.failed, "MORI_E_STATE"));
  }
}

TEST_CASE("an id out of range fails on its rank alone; dropped if asked for") {
  rank_group group({.rank_count = 2});
  for (const int32_t drop : {0, 1}) {
    mori_ep_config config = small_config();
    config.drop_invalid_experts = drop;
    operators ops(group, config);
    engine random(4);
    std::vector<ref::source> ranks = {tokens_to(random, 3, 0, 2), tokens_to(random, 4, 1, 3)};
    ranks[1].indices[5] = 4;          // token 2, slot 1: the first id that does not exist
    ranks[1].indices[6] = INT32_MAX;  // a later one is not named
    const dispatch_case c = case_of(config, ranks);
    for (int times = 0; times < 2; ++times) {
      std::vector<dispatched> got = dispatch_all(ops, c, random);
      if (drop == 0) {
        CHECK(got[1].failed ==
              "MORI_E_INVALID: expert id 4 of token 2, slot 1 is not below 4 (2 ranks * 2 "
              "experts); drop_invalid_experts = 1 would ignore it");
        got[1] = {"", {}, c.expected[1]};
        got[1].got.local_expert_count.clear();
      }
      CHECK(difference(c, got) == "");
      // The others expect a combine, and the rank takes part in it.
      const combine_case back = random_combine(random, c, small_call);
      CHECK(difference(back, combine_all(ops, c, back, random)) == "");
    }
  }
}

TEST_CASE("foreign routing fails on its rank alone") {
  rank_group group({.rank_count = 2});
  const mori_ep_config config = small_config();
  operators ops(group, config);
  engine random(5);
  const dispatch_case c = case_of(config, {tokens_to(random, 3, 0, 2), tokens_to(random, 4, 1, 3)});
  CHECK(difference(c, dispatch_all(ops, c, random)) == "");
  const combine_case back = random_combine(random, c, small_call);
  for (int foreign = 0; foreign < 2; ++foreign) {
    std::vector<combined> got = combine_all(ops, c, back, random, foreign);
    combined& bad = got[static_cast<size_t>(foreign)];
    CHECK(begins_with(bad.failed,
                      "MORI_E_INVALID: indices are not the routing of the last "
                      "dispatch: hash 0x"));
    bad = {"", back.expected[static_cast<size_t>(foreign)]};
    CHECK(difference(back, got) == "");
  }
  CHECK(difference(back, combine_all(ops, c, back, random)) == "");
}

TEST_CASE("ranks that disagree on a call all learn who and on what") {
  rank_group group({.rank_count = 3});
  mori_ep_config config = small_config();
  config.scale_dim = 1;
  config.scale_elem_bytes = 4;
  operators ops(group, config);
  engine random(6);
  const std::vector<float> weights(64, 1.f);
  struct odd {
    std::function<void(mori_ep_dispatch_args&)> change;  // on rank 1
    std::string text;
  };
  const odd odds[] = {
      {[](auto& a) { a.dtype = MORI_EP_BF16; }, "ranks 1 and 0 disagree on dtype: bf16 and f32"},
      {[](auto& a) { a.hidden_dim = 4; }, "ranks 1 and 0 disagree on hidden_dim: 4 and 16"},
      {[&](auto& a) { a.weights = weights.data(); },
       "ranks 1 and 0 disagree on weights: given and not given"},
      {[&](auto& a) { a.scales = weights.data(); },
       "ranks 1 and 0 disagree on scales: given and not given"},
  };
  for (const odd& each : odds) {
    std::vector<ref::source> from;
    for (int rank = 0; rank < 3; ++rank) from.push_back(tokens_to(random, 2, 0, 3));
    std::vector<std::string> got(3);
    group.each([&](int rank) {
      mori_ep_dispatch_args args{};
      args.struct_size = sizeof args;
      args.input = from[static_cast<size_t>(rank)].rows.data();
      args.indices = from[static_cast<size_t>(rank)].indices.data();
      args.token_count = 2;
      args.dtype = MORI_EP_F32;
      if (rank == 1) each.change(args);
      mori_ep_dispatch_result result{};
      result.struct_size = sizeof result;
      got[static_cast<size_t>(rank)] = failure(mori_ep_dispatch, ops[rank], &args, &result);
    });
    for (const std::string& text : got) CHECK(text == "MORI_E_MISMATCH: " + each.text);
    check_round_trip(ops, config, random);
  }
}

TEST_CASE("ranks that disagree in combine all fail, and the next combine works") {
  rank_group group({.rank_count = 2});
  const mori_ep_config config = small_config();
  operators ops(group, config);
  engine random(7);
  const dispatch_case c = case_of(config, {tokens_to(random, 3, 0, 2), tokens_to(random, 4, 1, 3)});
  CHECK(difference(c, dispatch_all(ops, c, random)) == "");
  const combine_case back = random_combine(random, c, small_call);
  std::vector<std::string> got(2);
  group.each([&](int rank) {
    const auto i = static_cast<size_t>(rank);
    mori_ep_combine_args args{};
    args.struct_size = sizeof args;
    args.input = back.outputs[i].rows.data();
    args.input_row_count = c.expected[i].row_count;
    args.indices = c.indices(rank);
    args.token_count = c.ranks[i].token_count;
    args.dtype = rank == 0 ? MORI_EP_F32 : MORI_EP_BF16;
    mori_ep_combine_result result{};
    result.struct_size = sizeof result;
    got[i] = failure(mori_ep_combine, ops[rank], &args, &result);
  });
  for (const std::string& text : got)
    CHECK(text == "MORI_E_MISMATCH: ranks 1 and 0 disagree on dtype: bf16 and f32");
  CHECK(difference(back, combine_all(ops, c, back, random)) == "");
}

TEST_CASE("dispatch moves dtypes that combine does not add") {
  rank_group group({.rank_count = 2});
  const mori_ep_config config = small_config();
  operators ops(group, config);
  engine random(8);
  for (const int32_t dtype : {MORI_EP_F8_E5M2, MORI_EP_F4_E2M1X2}) {
    const dispatch_case c = random_dispatch(random, config, 2, {dtype, 16, true, false, true});
    CHECK(difference(c, dispatch_all(ops, c, random)) == "");
  }
}

TEST_CASE("sixteen ranks; and nobody has a token") {
  rank_group group({.rank_count = 16, .heap_bytes = 4 << 20});
  const mori_ep_config config = small_config();
  operators ops(group, config);
  engine random(9);
  for (int times = 0; times < 3; ++times) check_round_trip(ops, config, random);
  const dispatch_case c = case_of(config, std::vector<ref::source>(16));
  CHECK(difference(c, dispatch_all(ops, c, random)) == "");
  const combine_case back = random_combine(random, c, small_call);
  CHECK(difference(back, combine_all(ops, c, back, random)) == "");
}

TEST_CASE("combine after combine: buffers are not overwritten while peers read") {
  rank_group group({.rank_count = 4});
  mori_ep_config config = small_config();
  config.registered_input = 1;
  operators ops(group, config);
  engine random(10);
  const dispatch_case c = random_dispatch(random, config, 4, small_call);
  const std::vector<dispatched> got = dispatch_all(ops, c, random);
  CHECK(difference(c, got) == "");
  for (int times = 0; times < 60; ++times) {
    combine_case back = random_combine(random, c, small_call);
    back.input = static_cast<input_kind>(times % 3);
    for (const dispatched& each : got) back.token_buffers.push_back(each.result.out);
    REQUIRE(difference(back, combine_all(ops, c, back, random)) == "");
  }
}

TEST_CASE("sums do not depend on the caller's rounding mode, which stays as it was") {
  rank_group group({.rank_count = 3});
  const mori_ep_config config = small_config();
  operators ops(group, config);
  engine random(11);
  for (const int mode : {FE_UPWARD, FE_TOWARDZERO, FE_TONEAREST}) {
    const dispatch_case c = random_dispatch(random, config, 3, small_call);
    CHECK(difference(c, dispatch_all(ops, c, random)) == "");
    const combine_case back = random_combine(random, c, small_call);
    group.each([&](int) { std::fesetround(mode); });
    CHECK(difference(back, combine_all(ops, c, back, random)) == "");
    group.each([&](int) { CHECK(std::fegetround() == mode); });
  }
}

TEST_CASE("a second call on a busy operator is refused") {
  rank_group group({.rank_count = 2});
  const mori_ep_config config = small_config();
  operators ops(group, config);
  std::atomic<bool> refused{false};
  std::thread second([&] {
    // Rank 0 waits in dispatch for rank 1, which waits for this.
    while (!refused)
      refused = failure(mori_ep_reset, ops[0]) ==
                "MORI_E_STATE: another call on this operator is in progress";
  });
  std::vector<std::string> got(2);
  group.each([&](int rank) {
    while (rank == 1 && !refused) std::this_thread::yield();
    mori_ep_dispatch_args args{};
    args.struct_size = sizeof args;
    args.dtype = MORI_EP_F32;
    mori_ep_dispatch_result result{};
    result.struct_size = sizeof result;
    // The other thread may hold the operator for a moment.
    do got[static_cast<size_t>(rank)] = failure(mori_ep_dispatch, ops[rank], &args, &result);
    while (got[static_cast<size_t>(rank)].find("in progress") != std::string::npos);
  });
  second.join();
  CHECK(got == std::vector<std::string>(2, ""));
}

TEST_CASE("a rank that does not come is named within the config's timeout") {
  rank_group group({.rank_count = 3, .worker_count = 2});
  mori_ep_config config = small_config();
  config.timeout_ns = 300'000'000;
  operators ops(group, config);
  std::vector<std::string> got(3);
  group.each([&](int rank) {
    if (rank == 2) return;
    mori_ep_dispatch_args args{};
    args.struct_size = sizeof args;
    args.dtype = MORI_EP_F32;
    mori_ep_dispatch_result result{};
    result.struct_size = sizeof result;
    got[static_cast<size_t>(rank)] = failure(mori_ep_dispatch, ops[rank], &args, &result);
  });
  // The first to notice says so to the other, which may hear it before its own deadline.
  int timeouts = 0;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string& text = got[static_cast<size_t>(rank)];
    timeouts += begins_with(text, "MORI_E_TIMEOUT: ") ? 1 : 0;
    CHECK_MESSAGE((begins_with(text, "MORI_E_TIMEOUT: ") || begins_with(text, "MORI_E_ABORTED: ")),
                  text);
    CHECK_MESSAGE(text.find("waiting for PE 2") != std::string::npos, text);
    // Final for the context.
    CHECK(failure(mori_ep_check, ops[rank]) == text);
  }
  CHECK(timeouts >= 1);
}
