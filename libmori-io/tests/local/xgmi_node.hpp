// xgmi_node.hpp - one side of the XGMI backend without an engine: regions and their
// descriptors, one open path, jobs run to their end. For the test and for the other process.
#pragma once

#include <mori/io_types.h>

#include "gpu_here.hpp"
#include "transport/xgmi.hpp"

#include <map>
#include <memory>

namespace mori::io_test {

namespace transport = io_core::transport;
namespace wire = io_core::wire;
using io_core::memory::piece;
using io_core::memory::region;

struct region_options {
  uint32_t id = 1;
  uint64_t address = 0;
  uint64_t bytes = 0;
  int32_t device = -1;  // host memory
  int32_t access = MORI_IO_ACCESS_READ | MORI_IO_ACCESS_WRITE;
};

class xgmi_node {
 public:
  xgmi_node() {
    auto made = transport::make_xgmi({.stream_count = 4, .event_count = 8}, images_here());
    if (made) backend_ = std::move(*made);
  }

  std::shared_ptr<region> add(const region_options& of) {
    auto made = std::make_shared<region>();
    made->id = of.id;
    made->begin = reinterpret_cast<std::byte*>(of.address);
    made->size_bytes = of.bytes;
    made->location = of.device < 0 ? MORI_IO_LOCATION_CPU : MORI_IO_LOCATION_GPU;
    made->device = of.device;
    made->access = of.access;
    (void)!backend_->describe(*made, made->blobs);
    regions_[of.id] = made;
    return made;
  }
  wire::memory_desc desc_of(uint32_t id) const {
    const region& of = *regions_.at(id);
    wire::memory_desc made;
    made.engine_key = "owner";
    made.region = id;
    made.address = reinterpret_cast<uintptr_t>(of.begin);
    made.size_bytes = of.size_bytes;
    made.location = of.location;
    made.device = of.device;
    made.access = of.access;
    made.blobs = of.blobs;
    return made;
  }
  void withdraw(uint32_t id) {
    backend_->withdraw(*regions_.at(id));
    regions_.erase(id);
  }

  base::status attach(const std::shared_ptr<region>& mine, const wire::memory_desc& theirs) {
    path_.reset();
    const transport::pair between{mine, std::make_shared<const wire::memory_desc>(theirs),
                                  std::make_shared<const wire::engine_desc>()};
    MORI_TRY(path_, backend_->attach(between, base::deadline::after(5 * base::ns_per_s)));
    return {};
  }
  void detach() { path_.reset(); }
  std::string path_text() const { return path_->text(); }

  // To its end, in turns of `budget` bytes.
  base::status run(bool is_read, std::span<const piece> pieces, uint64_t budget = 1 << 20) {
    transport::job what;
    what.along = path_.get();
    what.is_read = is_read;
    what.pieces = pieces;
    MORI_CHECK(backend_->start(what));
    for (;;) {
      MORI_TRY(const auto state, backend_->advance(what, budget));
      if (state == transport::job_state::done) return {};
    }
  }
  // So many turns, then it is given up.
  base::status run_and_cancel(bool is_read, std::span<const piece> pieces, int turns) {
    transport::job what;
    what.along = path_.get();
    what.is_read = is_read;
    what.pieces = pieces;
    MORI_CHECK(backend_->start(what));
    for (int i = 0; i < turns; ++i) {
      MORI_TRY(const auto state, backend_->advance(what, 100'000));
      if (state == transport::job_state::done) return {};
    }
    backend_->cancel(what);
    return base::fail(MORI_E_CANCELLED, "cancelled");
  }

 private:
  std::shared_ptr<transport::backend> backend_;
  std::map<uint32_t, std::shared_ptr<region>> regions_;
  std::shared_ptr<transport::path> path_;
};

}  // namespace mori::io_test
