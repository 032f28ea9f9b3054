// gpu_modules_test.cpp - modules of other compilers through the C ABI, on a driver whose devices
// are host memory: whose state a module has, when it is dead, and what is refused.
#include "gpu_session.hpp"
#include "pes.hpp"

#include <mori/shmem_module.h>

#include <cstring>

using namespace mori_test;

namespace {

using state = mori_shmem_device_state_v2;
constexpr const char* state_name = "mori_shmem_module_state_v2";

// A loaded module with a variable for the state, which a kernel would read.
class module_of_somebody {
 public:
  module_of_somebody(const gpu_session& in, const char* name = state_name,
                     uint64_t bytes = sizeof(state))
      : world_(in.world()), handle_(reinterpret_cast<uint64_t>(this)) {
    world_.alive.insert({"module", handle_});
    world_.set.variables[{handle_, name}] = {&variable_, bytes};
  }
  ~module_of_somebody() { unload(); }
  module_of_somebody(const module_of_somebody&) = delete;
  module_of_somebody& operator=(const module_of_somebody&) = delete;

  void unload() {
    if (handle_ == 0) return;
    std::erase_if(world_.set.variables,
                  [&](const auto& one) { return one.first.first == handle_; });
    world_.alive.erase({"module", handle_});
    handle_ = 0;
  }
  void* handle() const { return reinterpret_cast<void*>(handle_); }
  state& variable() { return variable_; }
  bool is_dead() const {
    const state none{};
    return std::memcmp(&variable_, &none, sizeof none) == 0;
  }

 private:
  fake::world& world_;
  uint64_t handle_;
  state variable_{};
};

mori_shmem* create() {
  mori_shmem_unique_id id{};
  REQUIRE(failure(mori_shmem_unique_id_create, &id) == "");
  mori_shmem_options with = options(0, 1);
  on_nvidia(with);
  mori_shmem* made = nullptr;
  REQUIRE(failure(mori_shmem_create, &id, &with, &made) == "");
  return made;
}

state state_of(mori_shmem* context) {
  state found{};
  REQUIRE(failure(mori_shmem_device_state, context, 2u, static_cast<void*>(&found),
                  uint64_t{sizeof found}) == "");
  return found;
}

std::string init(mori_shmem* context, void* module) {
  return failure(mori_shmem_module_init, context, module);
}

}  // namespace

TEST_CASE("modules: a module has the context's state until the context ends") {
  const gpu_session session;
  module_of_somebody one(session), other(session);
  mori_shmem* const context = create();
  const state mine = state_of(context);
  CHECK(init(context, one.handle()) == "");
  CHECK(std::memcmp(&one.variable(), &mine, sizeof mine) == 0);
  CHECK(other.is_dead());
  CHECK(init(context, other.handle()) == "");
  CHECK(init(context, one.handle()) == "");  // again
  mori_shmem_destroy(context);
  CHECK(one.is_dead());
  CHECK(other.is_dead());
  // Another context of the same process, later.
  mori_shmem* const second = create();
  CHECK(init(second, one.handle()) == "");
  CHECK(one.variable().level == 2);
  CHECK(other.is_dead());
  mori_shmem_destroy(second);
  CHECK(one.is_dead());
}

TEST_CASE("modules: one context at a time; giving back lets the next one have it") {
  const gpu_session session;
  module_of_somebody shared(session);
  mori_shmem* const first = create();
  mori_shmem* const second = create();
  CHECK(init(first, shared.handle()) == "");
  const std::string refused = init(second, shared.handle());
  CHECK(contains(refused, "MORI_E_STATE"));
  CHECK(contains(refused, "in use by PE 0 of this process"));
  const state of_first = state_of(first);
  CHECK(std::memcmp(&shared.variable(), &of_first, sizeof of_first) == 0);
  const std::string foreign = failure(mori_shmem_module_forget, second, shared.handle());
  CHECK(contains(foreign, "MORI_E_NOT_FOUND"));
  CHECK(failure(mori_shmem_module_forget, first, shared.handle()) == "");
  CHECK(shared.is_dead());
  CHECK(contains(failure(mori_shmem_module_forget, first, shared.handle()), "MORI_E_NOT_FOUND"));
  CHECK(init(second, shared.handle()) == "");
  mori_shmem_destroy(first);
  const state of_second = state_of(second);
  CHECK(std::memcmp(&shared.variable(), &of_second, sizeof of_second) == 0);
  mori_shmem_destroy(second);
  CHECK(shared.is_dead());
}

TEST_CASE("modules: what is refused says why") {
  const gpu_session session;
  module_of_somebody without(session, "another_variable"), small(session, state_name, 88);
  mori_shmem* const context = create();
  CHECK(contains(init(context, nullptr), "MORI_E_INVALID"));
  const std::string absent = init(context, without.handle());
  CHECK(contains(absent, "MORI_E_NOT_FOUND"));
  CHECK(contains(absent, state_name));
  const std::string sized = init(context, small.handle());
  CHECK(contains(sized, "MORI_E_VERSION"));
  CHECK(contains(sized, "has 88 bytes, this library's has 128"));
  CHECK(small.is_dead());
  session.world().set.faults["cuModuleGetGlobal_v2"] = 400;
  CHECK(contains(init(context, without.handle()), "cuModuleGetGlobal"));
  mori_shmem_destroy(context);
  CHECK(contains(init(context, without.handle()), "MORI_E_STATE"));

  mori_shmem_unique_id id{};
  REQUIRE(failure(mori_shmem_unique_id_create, &id) == "");
  mori_shmem_options with = options(0, 1);
  with.backend = MORI_BACKEND_HOST;
  mori_shmem* host = nullptr;
  REQUIRE(failure(mori_shmem_create, &id, &with, &host) == "");
  CHECK(contains(init(host, without.handle()), "MORI_E_UNAVAILABLE"));
  CHECK(contains(failure(mori_shmem_module_forget, host, without.handle()), "MORI_E_UNAVAILABLE"));
  mori_shmem_destroy(host);
}

// What an unloaded module leaves behind may be somebody else's memory by then.
TEST_CASE("modules: memory that is no longer the state is not overwritten") {
  const gpu_session session;
  module_of_somebody unloaded(session), unharmed(session);
  mori_shmem* const context = create();
  CHECK(init(context, unloaded.handle()) == "");
  CHECK(init(context, unharmed.handle()) == "");
  unloaded.unload();
  std::memset(&unloaded.variable(), 0x5c, sizeof(state));
  mori_shmem_destroy(context);
  state as_it_was{};
  std::memset(&as_it_was, 0x5c, sizeof as_it_was);
  CHECK(std::memcmp(&unloaded.variable(), &as_it_was, sizeof as_it_was) == 0);
  CHECK(unharmed.is_dead());
}

TEST_CASE("modules: a faulted context takes none, and its modules still die") {
  const gpu_session session;
  module_of_somebody early(session), late(session);
  mori_shmem* const context = create();
  CHECK(init(context, early.handle()) == "");
  CHECK(failure(mori_shmem_abort, context) == "");
  CHECK(contains(init(context, late.handle()), "MORI_E_ABORTED"));
  CHECK(late.is_dead());
  mori_shmem_destroy(context);
  CHECK(early.is_dead());
}
