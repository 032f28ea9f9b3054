// agreement.hpp - how all PEs reach one verdict: each says how its own step
// went, and all return the same answer, so that a collective call succeeds
// everywhere or fails everywhere.
#pragma once

#include <mori/base/clock.hpp>
#include <mori/base/result.hpp>
#include <mori/link/group.hpp>

#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

namespace mori::shmem_core {

// Fails on every PE if `mine` is a failure on any: with the own failure where
// it happened, elsewhere with that of the lowest PE, which is named.
base::status agree(link::group& group, const base::status& mine, base::deadline until);

// One T of every PE, by PE number.
template <class T>
base::result<std::vector<T>> exchange(link::group& group, const T& mine, base::deadline until) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<size_t>(group.size()));
  MORI_CHECK(group.allgather(std::as_bytes(std::span(&mine, 1)),
                             std::as_writable_bytes(std::span(all)), until));
  return all;
}

}  // namespace mori::shmem_core
