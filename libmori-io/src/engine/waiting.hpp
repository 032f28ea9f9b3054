// waiting.hpp - waiting for transfers, of one engine or of several.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "engine/records.hpp"

namespace mori::io_core {

// Transfers of this process that have failed so far: a wait looks at all of its transfers only
// when this has changed.
extern std::atomic<uint64_t> failure_count;

// As mori_io_transfer_wait.
base::status wait_for_transfers(std::span<const mori_io_transfer* const> which,
                                uint64_t timeout_ns);
void cancel_transfer(const transfer_table::ref& which);

}  // namespace mori::io_core
