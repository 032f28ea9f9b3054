// request.hpp - one call's arguments, checked against the config: everything
// the host can know without running anything. A refused call has no effect, on
// this rank or elsewhere, and may be repeated with better arguments. Pure: no
// memory behind the pointers is touched. Read operator/operator.hpp next.
#pragma once

#include "layout/settings.hpp"

#include <mori/ep.h>

#include <cstdint>

namespace mori::ep_core {

// A range of memory, by address.
struct extent {
  uint64_t begin = 0;
  uint64_t bytes = 0;

  bool overlaps(const extent& other) const {
    return bytes != 0 && other.bytes != 0 && begin < other.begin + other.bytes &&
           other.begin < begin + bytes;
  }
};

struct dispatch_request {
  uint64_t token_count;
  uint64_t hidden_dim;
  uint64_t row_bytes;
  uint32_t block_count;
};

// receive_buffers: what peers write to while this rank still reads its arguments.
base::result<dispatch_request> check_dispatch(const settings& s, const extent& receive_buffers,
                                              const mori_ep_dispatch_args& args);

// What combine has to know of the operator.
struct combine_facts {
  bool dispatched = false;
  uint64_t token_count = 0;  // T of the dispatch
  uint64_t recv_count = 0;
  extent tokens;  // dispatch's output, where external inputs are copied to
  extent combine_weights;
  bool has_registered = false;
};

enum class input_place { copied, in_tokens, in_registered };

struct combine_request {
  uint64_t hidden_dim;
  uint64_t row_bytes;
  uint32_t block_count;
  input_place place;
};

base::result<combine_request> check_combine(const settings& s, const combine_facts& facts,
                                            const mori_ep_combine_args& args);

}  // namespace mori::ep_core
