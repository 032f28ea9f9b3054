// request.hpp - one call's arguments, checked against the config: everything
// the host can know without running anything. A refused call has no effect, on
// this rank or elsewhere, and may be repeated with better arguments. Pure: no
// memory behind the pointers is touched. Read operator/operator.hpp next.
#pragma once

#include "layout/settings.hpp"

#include <mori/ep.h>

#include <cstdint>
#include <optional>

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

// Blocks and waves of a block are requests: the runtime clamps them to what can be resident.
struct launch_request {
  uint32_t block_count;
  uint32_t wave_count;
  void* stream;
};

// What dispatch has to know of the operator.
struct dispatch_facts {
  extent receive_buffers;  // what peers write to while this rank still reads its arguments
  bool has_streams = false;
};

struct dispatch_request {
  uint64_t token_count;
  uint64_t hidden_dim;
  uint64_t row_bytes;
  launch_request how;
};

base::result<dispatch_request> check_dispatch(const settings& s, const dispatch_facts& facts,
                                              const mori_ep_dispatch_args& args);

// What combine has to know of the operator.
struct combine_facts {
  bool dispatched = false;
  uint64_t token_count = 0;            // T of the dispatch
  std::optional<uint64_t> recv_count;  // where the host knows it
  extent tokens;                       // dispatch's output, where external inputs are copied to
  extent combine_weights;
  bool has_registered = false;
  bool has_streams = false;
};

enum class input_place { copied, in_tokens, in_registered };

struct combine_request {
  uint64_t hidden_dim;
  uint64_t row_bytes;
  launch_request how;
  input_place place;
};

base::result<combine_request> check_combine(const settings& s, const combine_facts& facts,
                                            const mori_ep_combine_args& args);

}  // namespace mori::ep_core
