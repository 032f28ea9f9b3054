// attach.hpp - any host memory of another process of this node, by process_vm_readv and
// process_vm_writev. Used only while it is proven that the process is the one that was
// meant: a nonce is read back from the address that it published, and it began when it
// said, before each batch. Whatever the kernel denies is a reason to go another way.
#pragma once

#include <mori/base/result.hpp>
#include <mori/base/unique_fd.hpp>

#include <sys/uio.h>

#include <atomic>
#include <memory>

#include "local/process.hpp"
#include "local/work.hpp"

namespace mori::io_core::local {

// The calls of the kernel, so that tests can make them fail. Each returns -1 and sets errno.
struct attach_calls {
  ssize_t (*readv)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);
  ssize_t (*writev)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);
  int (*pidfd_open)(pid_t, unsigned);
};
extern const attach_calls kernel_attach_calls;

class attachment {
 public:
  static constexpr uint64_t most_batch_bytes = uint64_t{64} << 20;  // between two proofs

  // Proves it. The failure is the reason why this process's memory cannot be attached here:
  // MORI_E_UNAVAILABLE (denied, another host or namespace), MORI_E_PEER_DEAD (not that process).
  static base::result<std::unique_ptr<attachment>> open(
      const process_card& target, const attach_calls& calls = kernel_attach_calls);

  const process_card& target() const { return target_; }

  // Whether the process is still the one that was meant.
  base::status prove() const;

  // Moves at most `budget` bytes, `at` forward by as many as were moved, also when it fails.
  // Any thread. MORI_E_PEER_DEAD: the process ended. MORI_E_OS: memory that is not there.
  base::status move(const work& what, position& at, uint64_t budget) const;

 private:
  attachment(const process_card& target, const attach_calls& calls)
      : target_(target), calls_(calls) {}
  base::status prove_lives() const;
  base::result<uint64_t> move_batch(const work& what, const position& at, uint64_t budget) const;
  base::failure explain(int os_errno) const;

  const process_card target_;
  const attach_calls calls_;
  base::unique_fd pidfd_;  // empty where the kernel has none
};

}  // namespace mori::io_core::local
