// gather.hpp - the sum of several rows, element by element: in fp32, in the order
// of the rows, starting from the first one's value, rounded once. All
// processors and all ways of splitting a row give the same bits. A wave does it;
// the rows lie in memory of other ranks. Read combine.hpp next.
#pragma once

#include "kernels/routing.hpp"

namespace mori::ep_core {

// --- The host: one lane, few enough elements at a time that their sums stay near the registers,
// while the next lines of all rows are fetched ----------------------------------------------------

template <class Element>
inline constexpr u32 tile_elements = static_cast<u32>(128 / sizeof(Element));

template <class Element, u32 Count>
MORI_HOT void add_tile(Element* out, const by_lane<u64>& rows, u32 row_count, u32 first) {
  float sum[Count];
  const Element* row = own<const Element>(rows.of(0), first);
  device::prefetch_beyond<sizeof(Element[Count])>(row);
  for (u32 i = 0; i < Count; ++i) sum[i] = device::to_float(row[i]);
  for (u32 r = 1; r < row_count; ++r) {
    row = own<const Element>(rows.of(r), first);
    device::prefetch_beyond<sizeof(Element[Count])>(row);
    for (u32 i = 0; i < Count; ++i) sum[i] = sum[i] + device::to_float(row[i]);
  }
  for (u32 i = 0; i < Count; ++i) out[first + i] = device::from_float<Element>(sum[i]);
}

template <class Element>
MORI_HOT void sum_tiles(Element* out, const by_lane<u64>& rows, u32 row_count, u32 elements) {
  constexpr u32 tile = tile_elements<Element>, narrow_tile = tile / 8;
  u32 first = 0;
  if (row_count == 0) {
    for (; first < elements; ++first) out[first] = device::from_float<Element>(0.0f);
    return;
  }
  for (; first + tile <= elements; first += tile)
    add_tile<Element, tile>(out, rows, row_count, first);
  for (; first + narrow_tile <= elements; first += narrow_tile)
    add_tile<Element, narrow_tile>(out, rows, row_count, first);
  for (; first < elements; ++first) add_tile<Element, 1>(out, rows, row_count, first);
}

// --- GPUs: each lane a chunk of every row, neighbouring lanes neighbouring chunks ----------------

struct alignas(16) wide_chunk {
  u32 word[4];
};
struct narrow_chunk {
  u32 word[1];
};

template <class Element, class Chunk>
struct chunk_sum {
  static constexpr u32 width = sizeof(Chunk) / sizeof(Element);
  struct elements {
    Element item[width];
  };

  float item[width];

  // Minus zero and x is x, whatever x is; the sum of nothing is plus zero.
  MORI_HOT explicit chunk_sum(u32 row_count) {
    for (float& each : item) each = row_count == 0 ? 0.0f : -0.0f;
  }
  MORI_HOT void add(const Chunk& chunk) {
    const auto from = device::bit_cast<elements>(chunk);
    for (u32 i = 0; i < width; ++i) item[i] = item[i] + device::to_float(from.item[i]);
  }
  MORI_HOT Chunk rounded() const {
    elements to;
    for (u32 i = 0; i < width; ++i) to.item[i] = device::from_float<Element>(item[i]);
    return device::bit_cast<Chunk>(to);
  }
};

// Rows whose loads are all under way before the first of them is added: as many as most tokens
// have. Written out by number, since an array of them must not be indexed by a variable on GPUs.
template <u32... Number>
struct row_numbers {};
using rows_in_flight = row_numbers<0, 1, 2, 3, 4, 5, 6, 7>;

template <class Element, class Chunk, u32... Number>
MORI_HOT void add_rows(chunk_sum<Element, Chunk>& sum, const by_lane<u64>& rows, u32 row_count,
                       u32 i, row_numbers<Number...>) {
  MORI_NO_UNROLL
  for (u32 r = 0; r < row_count; r += sizeof...(Number)) {
    Chunk chunk[sizeof...(Number)];
    const auto load = [&](Chunk& to, u32 row) {
      if (row < row_count) to = own<const Chunk>(rows.of(row))[i];
    };
    const auto add = [&](const Chunk& from, u32 row) {
      if (row < row_count) sum.add(from);
    };
    (load(chunk[Number], r + Number), ...);
    (add(chunk[Number], r + Number), ...);
  }
}

template <class Element, class Chunk>
MORI_HOT void sum_chunks(u64 out, const by_lane<u64>& rows, u32 row_count,
                         const span_of<u32>& chunks) {
  const wave w;
  MORI_NO_UNROLL
  for (u32 round = chunks.first; round < chunks.last; round += w.size()) {
    // Lanes behind the end read the last chunk too: no load depends on a lane's place.
    const u32 i = device::min(round + w.rank(), chunks.last - 1);
    chunk_sum<Element, Chunk> sum(row_count);
    add_rows(sum, rows, row_count, i, rows_in_flight{});
    if (round + w.rank() < chunks.last) own<Chunk>(out)[i] = sum.rounded();
  }
}

// A wave sums the elements of `part` of row_count rows at addresses `rows`. Wide: rows and part are
// multiples of 16 bytes.
template <class Element, bool Wide>
MORI_DEVICE void sum_rows(u64 out, const by_lane<u64>& rows, u32 row_count,
                          const span_of<u32>& part) {
  if constexpr (wave::single) {
    sum_tiles(own<Element>(out, part.first), rows, row_count, part.count());
  } else if constexpr (Wide) {
    constexpr u32 width = chunk_sum<Element, wide_chunk>::width;
    sum_chunks<Element, wide_chunk>(out, rows, row_count, {part.first / width, part.last / width});
  } else {
    static_assert(sizeof(Element) == sizeof(narrow_chunk));
    sum_chunks<Element, narrow_chunk>(out, rows, row_count, part);
  }
}

}  // namespace mori::ep_core
