// world.cpp - see world.hpp. The PEs are those of shmem's own tests.
#include "world.hpp"

#include "kernels.hpp"
#include "plain_pes.hpp"

#include <mori/device/launch.hpp>
#include <mori/device/runtime.hpp>

#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

using mori::shmem_test::fake_group;
using mori::shmem_test::fake_pe;
using mori::shmem_test::guarded_memory;

struct mori_amd_world {
  mori_amd_world(int32_t pe_count, uint64_t heap_bytes, uint64_t private_bytes)
      : group(pe_count, heap_bytes),
        launches(static_cast<size_t>(pe_count)),
        barriers(static_cast<size_t>(pe_count)) {
    for (int32_t i = 0; i < pe_count; ++i)
      memory.push_back(std::make_unique<guarded_memory>(private_bytes));
  }

  fake_group group;
  std::vector<mori_device_launch> launches;
  std::vector<mori_device_grid_barrier> barriers;
  std::vector<std::unique_ptr<guarded_memory>> memory;
};

namespace {

uint64_t address(const void* p) { return reinterpret_cast<uint64_t>(p); }

const mori_device_host_kernel* kernel_named(const char* name) {
  for (const mori_device_host_kernel* kernel : mori::amd_test::host_kernels())
    if (std::strcmp(kernel->name, name) == 0) return kernel;
  return nullptr;
}

}  // namespace

mori_amd_world* mori_amd_world_create(int32_t pe_count, uint64_t heap_bytes,
                                      uint64_t private_bytes) try {
  return new mori_amd_world(pe_count, heap_bytes, private_bytes);
} catch (const std::bad_alloc&) {
  return nullptr;
}

void mori_amd_world_destroy(mori_amd_world* world) { delete world; }

uint64_t mori_amd_world_pe(mori_amd_world* world, int32_t pe, mori_amd_pe* out) {
  const auto at = static_cast<size_t>(pe);
  const fake_pe& from = world->group[pe];
  const mori_shmem_sync_v1& sync = from.sync();
  *out = {.heap = address(from.heap.data()),
          .heap_bytes = from.heap.size(),
          .user = address(from.user()),
          .private_memory = address(world->memory[at]->data()),
          .private_bytes = world->memory[at]->size(),
          .state = address(&from.state),
          .state_bytes = sizeof from.state,
          .fault = address(&from.fault),
          .fault_bytes = sizeof from.fault,
          .abort_word = address(&from.abort_word),
          .left = address(from.left.data()),
          .peer_bases = address(from.peer_bases.data()),
          .transports = address(from.transports.data()),
          .launch = address(&world->launches[at]),
          .launch_bytes = sizeof(mori_device_launch),
          .barrier = address(&world->barriers[at]),
          .barrier_bytes = sizeof(mori_device_grid_barrier),
          .device_barrier = address(sync.device_barrier),
          .device_barrier_bytes = sizeof sync.device_barrier,
          .device_epoch = address(&sync.device_epoch),
          .doorbell = address(&sync.doorbell)};
  return sizeof *out;
}

void mori_amd_make_launch(mori_amd_world* world, int32_t pe, uint32_t block_count) {
  const mori_shmem_device_state_v2& state = world->group[pe].state;
  const auto at = static_cast<size_t>(pe);
  world->barriers[at] = {};
  world->launches[at] = {.struct_size = sizeof(mori_device_launch),
                         .block_count = block_count,
                         .pe = pe,
                         .barrier = address(&world->barriers[at]),
                         .abort_word = state.abort_word,
                         .fault = state.fault,
                         // Blocks wait for one that waits for peers, whose wait must end first.
                         .wait_budget_ns = 2 * state.wait_budget_ns + 1'000'000'000,
                         .spin_count = state.spin_count};
}

void mori_amd_set_wait_budget(mori_amd_world* world, int32_t pe, uint64_t ns) {
  world->group[pe].state.wait_budget_ns = ns;
}

int32_t mori_amd_run_on_host(const mori_amd_run* runs, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i)
    if (kernel_named(runs[i].kernel) == nullptr) return 1;
  std::vector<std::thread> blocks;
  for (uint64_t i = 0; i < count; ++i) {
    const mori_device_host_kernel* kernel = kernel_named(runs[i].kernel);
    const auto* launch = static_cast<const mori_device_launch*>(runs[i].launch);
    for (unsigned block = 0; block < launch->block_count; ++block)
      blocks.emplace_back(kernel->run, runs[i].arguments, launch, block);
  }
  for (std::thread& block : blocks) block.join();
  return 0;
}
