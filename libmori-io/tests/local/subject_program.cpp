// subject_program.cpp - the other process in tests of same-node transfers: it owns memory,
// says who it is, and moves bytes from and to a third process when told. One command a line
// on stdin, one answer a line on stdout.
//
// usage: subject_program [--user N] [--pid-namespace]
#include "become.hpp"
#include "gpu_here.hpp"
#include "local/attach.hpp"
#include "local/gpu_share.hpp"
#include "local/mapping.hpp"
#include "subject_text.hpp"
#include "xgmi_node.hpp"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

using namespace mori;
using namespace mori::io_core::local;
namespace testing = mori::io_test;

namespace {

std::byte* bytes_at(uint64_t address) { return reinterpret_cast<std::byte*>(address); }

std::string outcome_of(const base::status& outcome) {
  return outcome ? "ok" : fmt::format("{} {}", outcome.error().status, outcome.error().text);
}

// process_vm_* answer EPERM from now on, as under a container's policy.
bool forbid_attaching() {
  const auto load = [](size_t at) {
    return sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<uint32_t>(at)};
  };
  const auto when = [](uint32_t number, uint8_t skip) {
    return sock_filter{BPF_JMP | BPF_JEQ | BPF_K, skip, 0, number};
  };
  const auto answer = [](uint32_t what) { return sock_filter{BPF_RET | BPF_K, 0, 0, what}; };
  sock_filter program[] = {
      load(offsetof(seccomp_data, nr)),  when(SYS_process_vm_readv, 2),
      when(SYS_process_vm_writev, 1),    answer(SECCOMP_RET_ALLOW),
      answer(SECCOMP_RET_ERRNO | EPERM),
  };
  const sock_fprog all{std::size(program), program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0;
}

class session {
 public:
  std::string obey(const std::string& line) {
    std::istringstream in(line);
    std::string what;
    in >> what;
    if (what == "card") return card();
    if (what == "map") return map(in);
    if (what == "unmap") return unmap(in);
    if (what == "fill") return fill(in);
    if (what == "sum") return sum(in);
    if (what == "attach") return attach(in);
    if (what == "move") return move(in);
    if (what == "detach") return attached_.reset(), "ok";
    if (what == "hide") return ::prctl(PR_SET_DUMPABLE, 0) == 0 ? "ok" : "failed";
    if (what == "forbid") return forbid_attaching() ? "ok" : "failed";
    if (what == "child") return child_nonce();
    if (what == "allocate") return allocate(in);
    if (what == "free") return free(in);
    if (what == "withdraw") return desk_->withdraw(number(in)), "ok";
    if (what == "fetch") return fetch(in);
    if (what.starts_with("xgmi-")) return obey_xgmi(what.substr(5), in);
    if (what.starts_with("gpu-")) return obey_gpu(what.substr(4), in);
    return "what is " + what + "?";
  }

 private:
  static uint64_t number(std::istream& in) {
    uint64_t value = 0;
    in >> value;
    return value;
  }

  static std::string card() {
    const auto own = own_process();
    return own ? testing::card_text(*own) : own.error().text;
  }

  static std::string map(std::istream& in) {
    const uint64_t bytes = number(in);
    void* const made =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return std::to_string(made == MAP_FAILED ? 0 : reinterpret_cast<uintptr_t>(made));
  }

  static std::string unmap(std::istream& in) {
    const uint64_t at = number(in), bytes = number(in);
    return ::munmap(bytes_at(at), bytes) == 0 ? "ok" : "failed";
  }

  static std::string fill(std::istream& in) {
    const uint64_t at = number(in), bytes = number(in), seed = number(in);
    testing::fill(bytes_at(at), bytes, seed);
    return "ok";
  }

  static std::string sum(std::istream& in) {
    const uint64_t at = number(in), bytes = number(in);
    return std::to_string(testing::sum(bytes_at(at), bytes));
  }

  std::string attach(std::istream& in) {
    std::string text;
    in >> text;
    auto made = attachment::open(testing::card_of(text));
    if (!made) return outcome_of(made.error());
    attached_ = std::move(*made);
    return "ok";
  }

  // move READ LOCAL REMOTE BYTES
  std::string move(std::istream& in) {
    const bool is_read = number(in) != 0;
    const uint64_t local = number(in), remote = number(in), bytes = number(in);
    const piece whole{0, 0, bytes};
    const work what{is_read, {&whole, 1}, bytes_at(local), remote};
    position at;
    const auto outcome = attached_ ? attached_->move(what, at, UINT64_MAX)
                                   : base::status(base::fail(MORI_E_STATE, "nothing is attached"));
    return outcome_of(outcome);
  }

  // What a child of fork() has where this process has its nonce.
  static std::string child_nonce() {
    const auto own = own_process();
    const pid_t child = ::fork();
    if (child == 0) {
      const auto theirs = own_process();
      const bool kept =
          std::memcmp(bytes_at(own->nonce_address), own->nonce.data(), own->nonce.size()) == 0;
      ::_exit(kept ? 1 : !theirs || theirs->nonce == own->nonce ? 2 : 0);
    }
    int state = -1;
    ::waitpid(child, &state, 0);
    return std::to_string(WEXITSTATUS(state));
  }

  // allocate BYTES WRITABLE: address, then the offer
  std::string allocate(std::istream& in) {
    const uint64_t bytes = number(in);
    const bool writable = number(in) != 0;
    const auto made = segment_pool::of_process().allocate(bytes);
    if (!made) return outcome_of(made.error());
    if (!desk_) {
      auto opened = share_desk::open();
      if (!opened) return outcome_of(opened.error());
      desk_ = std::move(*opened);
    }
    const auto offer = offer_segment(*desk_, *made, bytes, writable);
    if (!offer) return "no segment";
    return fmt::format("{} {} {}", reinterpret_cast<uintptr_t>(*made), offer->from.number,
                       testing::hex(encode(*offer)));
  }

  static std::string free(std::istream& in) {
    return outcome_of(segment_pool::of_process().free(bytes_at(number(in))));
  }

  // fetch OFFER: the address of the mapping
  std::string fetch(std::istream& in) {
    std::string text;
    in >> text;
    const auto offer = decode_segment_offer(testing::unhex(text));
    if (!offer) return outcome_of(offer.error());
    auto made = cache_.get(*offer, base::deadline::after(5 * base::ns_per_s));
    if (!made) return outcome_of(made.error());
    mappings_.push_back(*made);
    return std::to_string(reinterpret_cast<uintptr_t>((*made)->data()) + offer->offset);
  }

  std::string obey_xgmi(const std::string& what, std::istream& in) {
    if (what == "region") return xgmi_region(in);
    if (what == "withdraw") return node().withdraw(static_cast<uint32_t>(number(in))), "ok";
    if (what == "attach") return xgmi_attach(in);
    if (what == "job") return xgmi_job(in);
    return "what is xgmi-" + what + "?";
  }

  testing::xgmi_node& node() {
    if (!node_) node_ = std::make_unique<testing::xgmi_node>();
    return *node_;
  }

  testing::region_options region_options(std::istream& in) {
    testing::region_options of;
    of.id = static_cast<uint32_t>(number(in));
    of.address = number(in);
    of.bytes = number(in);
    of.device = number(in) != 0 ? gpu_->facts().ordinal : -1;
    of.access = static_cast<int32_t>(number(in));
    return of;
  }

  // xgmi-region ID ADDRESS BYTES ON_GPU ACCESS: the descriptor
  std::string xgmi_region(std::istream& in) {
    const auto of = region_options(in);
    node().add(of);
    const auto packed = io_core::wire::pack(node().desc_of(of.id));
    return packed ? testing::hex(*packed) : outcome_of(packed.error());
  }

  // xgmi-attach ID ADDRESS BYTES ON_GPU ACCESS DESCRIPTOR: which way it is
  std::string xgmi_attach(std::istream& in) {
    const auto mine = node().add(region_options(in));
    std::string text;
    in >> text;
    const auto theirs = io_core::wire::unpack_memory(testing::unhex(text));
    if (!theirs) return outcome_of(theirs.error());
    const auto outcome = node().attach(mine, *theirs);
    return outcome ? node().path_text() : outcome_of(outcome);
  }

  // xgmi-job READ LOCAL REMOTE BYTES
  std::string xgmi_job(std::istream& in) {
    const bool is_read = number(in) != 0;
    piece one;
    one.local_offset = number(in);
    one.remote_offset = number(in);
    one.bytes = number(in);
    return outcome_of(node().run(is_read, {&one, 1}));
  }

  std::string obey_gpu(const std::string& what, std::istream& in) {
    if (what == "open") return open_gpu();
    if (what == "buffer") return gpu_buffer(in);
    if (what == "virtual") return gpu_virtual(in);
    if (what == "fault") return gpu_fault(in);
    if (what == "offer") return gpu_offer_text(in);
    if (what == "fill") return gpu_fill(in);
    if (what == "sum") return gpu_sum(in);
    return "what is gpu-" + what + "?";
  }

  std::string open_gpu() {
    auto opened = io_test::open_gpu();
    if (!opened) return outcome_of(opened.error());
    gpu_ = std::move(*opened);
    return "ok";
  }

  std::string gpu_buffer(std::istream& in) {
    auto made = device::device_buffer::allocate(gpu_, number(in));
    if (!made) return outcome_of(made.error());
    buffers_.push_back(std::move(*made));
    return std::to_string(buffers_.back().address());
  }

  // gpu-virtual GRANULES PARTS: parts of so many granules, mapped one behind the other, as
  // PyTorch's expandable segments are. They stay until the process ends.
  std::string gpu_virtual(std::istream& in) {
    const uint64_t granules = number(in), parts = number(in);
    const auto granule = gpu_->granule_bytes();
    if (!granule) return outcome_of(granule.error());
    const uint64_t bytes = granules * *granule;
    const auto start = gpu_->reserve_addresses(bytes * parts, *granule);
    if (!start) return outcome_of(start.error());
    for (uint64_t i = 0; i < parts; ++i) {
      const auto memory = gpu_->create_memory(bytes);
      if (!memory) return outcome_of(memory.error());
      const auto mapped = gpu_->map(*start + i * bytes, bytes, *memory);
      if (!mapped) return outcome_of(mapped);
      gpu_->release_memory(*memory);
    }
    return fmt::format("{} {}", *start, bytes);
  }

  // The next call of that name fails; of the fake driver.
  static std::string gpu_fault(std::istream& in) {
    std::string name;
    in >> name;
    io_test::fake_nvidia().world().set.faults[name] = 999;
    return "ok";
  }

  // gpu-offer ADDRESS BYTES
  std::string gpu_offer_text(std::istream& in) {
    if (!desk_) {
      auto opened = share_desk::open();
      if (!opened) return outcome_of(opened.error());
      desk_ = std::move(*opened);
    }
    const uint64_t address = number(in), bytes = number(in);
    const auto made = exporter_.offer(*desk_, gpu_, address, bytes);
    return made ? testing::hex(encode(*made)) : outcome_of(made.error());
  }

  std::string gpu_fill(std::istream& in) {
    const uint64_t address = number(in), bytes = number(in), seed = number(in);
    return outcome_of(io_test::fill_device(*gpu_, address, bytes, seed));
  }

  std::string gpu_sum(std::istream& in) {
    const uint64_t address = number(in), bytes = number(in);
    const auto all = io_test::bytes_of_device(*gpu_, address, bytes);
    return std::to_string(testing::sum(all.data(), all.size()));
  }

  std::unique_ptr<testing::xgmi_node> node_;
  std::shared_ptr<device::gpu> gpu_;
  std::vector<device::device_buffer> buffers_;
  gpu_exporter exporter_;
  std::unique_ptr<attachment> attached_;
  std::unique_ptr<share_desk> desk_;
  mapping_cache cache_;
  std::vector<std::shared_ptr<mapping>> mappings_;
};

// A child in a new namespace goes on; this process waits for it.
int in_new_namespace() {
  if (::unshare(CLONE_NEWPID) != 0) return 3;
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return -1;
  }
  int state = 0;
  ::waitpid(child, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : 4;
}

}  // namespace

int main(int count, char** arguments) {
  for (int i = 1; i < count; ++i) {
    const std::string option = arguments[i];
    if (option == "--pid-namespace") {
      if (const int status = in_new_namespace(); status >= 0) return status;
    } else if (option == "--user" && i + 1 < count) {
      testing::become(arguments[i + 1], arguments[0]);
      return 5;
    }
  }
  session here;
  std::string line;
  while (std::getline(std::cin, line) && line != "quit") {
    if (line.starts_with("exec")) {
      std::cout << "ok" << std::endl;  // nothing more is read before the program is another
      ::execv("/proc/self/exe", arguments);
      return 6;
    }
    std::cout << here.obey(line) << std::endl;
  }
  return 0;
}
