// handles.hpp - what all exports begin with: the table of contexts, and calls that pin one
// of them for as long as they run.
#pragma once

#include "context/context.hpp"

#include <mori/base/boundary.hpp>
#include <mori/base/handle.hpp>

namespace mori::shmem_capi {

using shmem_core::context;

base::handle_table<context, mori_shmem>& contexts();

// Pins the handle and runs body(context&).
template <class Body>
mori_status on(const mori_shmem* handle, mori_error* error, Body&& body) noexcept {
  return base::guard(error, [&]() -> base::status {
    MORI_TRY(const std::shared_ptr<context> pinned, contexts().pin(handle));
    return body(*pinned);
  });
}

// The same for calls that a faulted context refuses.
template <class Body>
mori_status on_sound(const mori_shmem* handle, mori_error* error, Body&& body) noexcept {
  return on(handle, error, [&](context& c) -> base::status {
    MORI_CHECK(c.check());
    return body(c);
  });
}

}  // namespace mori::shmem_capi

namespace base = mori::base;
