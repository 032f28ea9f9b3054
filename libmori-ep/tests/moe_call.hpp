// moe_call.hpp - the cases of moe_case.hpp called on all ranks through the C ABI. Used by
// the operator's tests.
#pragma once

#include "moe_case.hpp"
#include "rank_group.hpp"

#include <string>
#include <vector>

namespace ep_test {

std::vector<dispatched> dispatch_all(operators& ops, const dispatch_case& c, engine& random);

// foreign_rank: gives other indices than to dispatch; -1: nobody.
std::vector<combined> combine_all(operators& ops, const dispatch_case& c, const combine_case& with,
                                  engine& random, int foreign_rank = -1);

// MORI_TEST_SEED, else a new one; prints how to repeat the run when a test of it fails.
uint64_t test_seed();
std::string how_to_repeat(uint64_t seed);

}  // namespace ep_test
