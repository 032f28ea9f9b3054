// reference.cpp - see reference.hpp.
#include "kernels/reference.hpp"

#include "kernels/number_format.hpp"

#include <cstring>
#include <set>
#include <utility>

namespace mori::ep_reference {
namespace {

// The ranks that token `token` of `from` goes to, each once, ascending.
std::set<uint64_t> destinations(const shape& s, const source& from, uint64_t token) {
  std::set<uint64_t> ranks;
  for (uint64_t slot = 0; slot < s.expert_per_token_count; ++slot) {
    const int64_t id = from.indices[token * s.expert_per_token_count + slot];
    const uint64_t expert_count = s.rank_count * s.expert_per_rank_count;
    if (id >= 0 && static_cast<uint64_t>(id) < expert_count)
      ranks.insert(static_cast<uint64_t>(id) / s.expert_per_rank_count);
  }
  return ranks;
}

template <class T>
void append_row(std::vector<T>& to, const std::vector<T>& from, uint64_t row, uint64_t width) {
  const auto begin = from.begin() + static_cast<std::ptrdiff_t>(row * width);
  to.insert(to.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
}

uint32_t load_element(const bytes& rows, uint64_t offset, uint32_t width) {
  uint32_t bits = 0;
  std::memcpy(&bits, rows.data() + offset, width);
  return bits;
}

}  // namespace

std::vector<received> dispatch(const shape& s, const std::vector<source>& ranks) {
  std::vector<received> all(s.rank_count);
  for (received& one : all) one.local_expert_count.assign(s.expert_per_rank_count, 0);

  for (uint64_t from = 0; from < s.rank_count; ++from) {
    const source& given = ranks[from];
    for (uint64_t token = 0; token < given.token_count; ++token) {
      for (const uint64_t to : destinations(s, given, token)) {
        received& at = all[to];
        ++at.row_count;
        append_row(at.rows, given.rows, token, s.row_bytes);
        append_row(at.indices, given.indices, token, s.expert_per_token_count);
        if (s.has_weights) append_row(at.weights, given.weights, token, s.expert_per_token_count);
        if (s.scale_row_bytes != 0) append_row(at.scales, given.scales, token, s.scale_row_bytes);
        at.positions.push_back(
            static_cast<int32_t>(from * (s.rank_count * s.max_input_token_count) + token));
      }
    }
  }

  for (uint64_t rank = 0; rank < s.rank_count; ++rank)
    for (const int32_t id : all[rank].indices) {
      const int64_t local = id - static_cast<int64_t>(rank * s.expert_per_rank_count);
      if (local >= 0 && local < static_cast<int64_t>(s.expert_per_rank_count))
        ++all[rank].local_expert_count[static_cast<uint64_t>(local)];
    }
  return all;
}

std::vector<combined> combine(const shape& s, int32_t dtype, const std::vector<source>& ranks,
                              const std::vector<expert_output>& outputs) {
  const number_format& format = format_of_dtype(dtype);
  const uint32_t width = format.total_bytes();
  const uint64_t K = s.expert_per_token_count;
  std::vector<combined> all(s.rank_count);
  // Rows leave each destination in the order in which they came: by (source rank, token).
  std::vector<uint64_t> next_row(s.rank_count, 0);

  for (uint64_t rank = 0; rank < s.rank_count; ++rank) {
    const uint64_t token_count = ranks[rank].token_count;
    all[rank].rows.assign(token_count * s.row_bytes, std::byte{0});
    if (s.has_weights) all[rank].weights.assign(token_count * K, 0.0f);

    for (uint64_t token = 0; token < token_count; ++token) {
      std::vector<std::pair<uint64_t, uint64_t>> places;  // (rank, row), ascending rank
      for (const uint64_t to : destinations(s, ranks[rank], token))
        places.emplace_back(to, next_row[to]++);
      if (places.empty()) continue;

      for (uint64_t at = 0; at < s.row_bytes; at += width) {
        float sum = 0;
        bool first = true;
        for (const auto& [to, row] : places) {
          const uint32_t bits = load_element(outputs[to].rows, row * s.row_bytes + at, width);
          const auto value = static_cast<float>(decode(format, bits));
          sum = first ? value : sum + value;
          first = false;
        }
        const uint32_t bits = encode(format, sum);
        std::memcpy(all[rank].rows.data() + token * s.row_bytes + at, &bits, width);
      }
      for (uint64_t slot = 0; s.has_weights && slot < K; ++slot) {
        float sum = 0;
        bool first = true;
        for (const auto& [to, row] : places) {
          const float value = outputs[to].weights[row * K + slot];
          sum = first ? value : sum + value;
          first = false;
        }
        all[rank].weights[token * K + slot] = sum;
      }
    }
  }
  return all;
}

}  // namespace mori::ep_reference
