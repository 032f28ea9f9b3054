// backend.hpp - a way to move bytes that this engine drives alone, without the
// peer's help: mapped or attached memory of the same node, GPU copies, later
// verbs. TCP is not one of them: there the peer takes part, and the link
// (protocol/) is it. Notifications always go over the link, after the bytes.
//
// Life of a pair: the target `describe`s its region when it is registered (or
// when the backend is made later), so that the memory descriptor carries what is
// needed; the initiator `attach`es when a session is created, and then runs jobs
// along the path. The engine tells the target over the link which regions it has
// attached, and drops the path (the last shared_ptr) when the target revokes one.
#pragma once

#include <mori/base/clock.hpp>
#include <mori/base/result.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/region.hpp"
#include "wire/descriptor.hpp"

namespace mori::io_core::transport {

using memory::piece;

// What a session joins. All three outlive the path.
struct pair {
  std::shared_ptr<const memory::region> local;
  std::shared_ptr<const wire::memory_desc> remote;
  std::shared_ptr<const wire::engine_desc> peer;
};

// One open way between the two memories of a pair; backends derive from it.
class path {
 public:
  virtual ~path() = default;
  // For logs and mori_io_stats::reason: "host memory mapped", "cross-memory attach".
  virtual std::string text() const = 0;
};

enum class job_state {
  done,     // all bytes are where they belong, visible to the peer
  more,     // the budget is used up: call again
  waiting,  // a device works on it: call again soon, or when event_fd() is readable
};

// One transfer on its way. Pieces are sorted by remote offset and merged; they
// stay in place until the job is over. `cursor` is the backend's own.
struct job {
  path* along = nullptr;
  bool is_read = false;
  std::span<const piece> pieces;
  struct {
    uint64_t piece = 0;
    uint64_t bytes = 0;  // of that piece
    uint64_t word[4] = {};
    void* pointer[2] = {};
  } cursor;
};

class backend {
 public:
  virtual ~backend() = default;

  virtual int32_t type() const = 0;       // MORI_IO_BACKEND_*
  virtual const char* name() const = 0;   // "XGMI"
  virtual std::string facts() const = 0;  // what it found on this machine, for `reason`

  // Target side. Appends blobs of its own kinds to the region's; nothing to say is no failure. The
  // region's other fields are final.
  virtual base::status describe(const memory::region& what,
                                std::vector<wire::desc_blob>& blobs) = 0;
  // The region is gone from the registry: resources made by describe() can go.
  virtual void withdraw(const memory::region& what) = 0;

  // Initiator side. Proves that the remote memory is what it says, then opens it. A failure is the
  // reason why this backend does not reach it. May wait a little, never past `until`; no lock of
  // the engine is held.
  virtual base::result<std::shared_ptr<path>> attach(const pair& between, base::deadline until) = 0;

  // Jobs. One call at a time for one job, several jobs at once from several threads. start() is
  // followed by advance() until that is done or fails, or by cancel(). After a failure, done or
  // cancel() nothing touches local memory any more. advance() moves about budget_bytes.
  virtual base::status start(job& what) = 0;
  virtual base::result<job_state> advance(job& what, uint64_t budget_bytes) = 0;
  virtual void cancel(job& what) = 0;

  // Readable when a job that was waiting may have gone on; -1: there is none, the engine polls.
  virtual int event_fd() const { return -1; }
};

// Where memory lies: fills location, device, device_bus_id and numa_node. location
// MORI_IO_LOCATION_*: as the caller said; device -1: unknown to him. MORI_E_INVALID when memory
// said to be on a GPU is not, MORI_E_UNAVAILABLE without a driver. Defined in location.cpp.
base::status locate_memory(memory::region& what, int32_t location, int32_t device);

// MORI_IO_BACKEND_XGMI, or why it cannot be had here. Defined in xgmi.cpp.
struct xgmi_options {
  int32_t stream_count = 64;
  int32_t event_count = 64;
};
base::result<std::shared_ptr<backend>> make_xgmi(const xgmi_options& options);

}  // namespace mori::io_core::transport
