// roster.cpp - see roster.hpp.
#include "bootstrap/roster.hpp"

#include <algorithm>

namespace mori::link {

void write_enrolment(byte_writer& out, const enrolment& e) {
  out.i32(e.rank);
  out.i32(e.size);
  out.i32(e.process_id);
  out.u64(e.heartbeat_timeout_ns);
  out.u64(e.where.host_key);
  out.text(e.where.node_id);
  out.raw(std::as_bytes(std::span(e.socket_name)));
  out.u8(static_cast<uint8_t>(e.addresses.size()));
  for (const tcp::address& a : e.addresses) tcp::write_address(out, a);
}

enrolment read_enrolment(byte_reader& in) {
  enrolment e;
  e.rank = in.i32();
  e.size = in.i32();
  e.process_id = in.i32();
  e.heartbeat_timeout_ns = in.u64();
  e.where.host_key = in.u64();
  e.where.node_id = in.text(max_node_id_bytes);
  const byte_span name = in.raw(e.socket_name.size());
  if (!name.empty()) std::memcpy(e.socket_name.data(), name.data(), name.size());
  const size_t count = in.u8();
  for (size_t i = 0; i < count && in.good(); ++i) e.addresses.push_back(tcp::read_address(in));
  return e;
}

base::status roster::add(enrolment e) {
  if (e.size < 1 || e.size > max_group_size)
    return base::fail(MORI_E_MISMATCH, "PE {} (pid {}) joined with group size {}, limit {}", e.rank,
                      e.process_id, e.size, max_group_size);
  if (present_ == 0) {
    entries_.resize(static_cast<size_t>(e.size));
    first_rank_ = e.rank;
    first_process_id_ = e.process_id;
  }
  if (e.size != size())
    return base::fail(MORI_E_MISMATCH,
                      "PE {} (pid {}) joined with group size {}, PE {} (pid {}) with {}", e.rank,
                      e.process_id, e.size, first_rank_, first_process_id_, size());
  if (e.rank < 0 || e.rank >= size())
    return base::fail(MORI_E_MISMATCH, "PE {} (pid {}) is outside 0 .. {}", e.rank, e.process_id,
                      size() - 1);
  auto& entry = entries_[static_cast<size_t>(e.rank)];
  if (entry)
    return base::fail(MORI_E_MISMATCH, "PE {} joined twice: pid {} and pid {}", e.rank,
                      entry->process_id, e.process_id);
  entry = std::move(e);
  ++present_;
  return {};
}

std::string list_ranks(const std::vector<int>& ranks, size_t shown) {
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), shown); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > shown) text += fmt::format(" and {} more", ranks.size() - shown);
  return text;
}

std::string roster::missing_text() const {
  std::vector<int> missing;
  for (int rank = 0; rank < size(); ++rank)
    if (!has(rank)) missing.push_back(rank);
  return fmt::format("PE {} of {}", list_ranks(missing), size());
}

byte_vector roster::encode() const {
  byte_writer out;
  for (const auto& entry : entries_) write_enrolment(out, *entry);
  return out.take();
}

base::result<std::vector<enrolment>> roster::decode(byte_span bytes, int size) {
  byte_reader in(bytes);
  std::vector<enrolment> table;
  for (int rank = 0; rank < size && in.good(); ++rank) {
    table.push_back(read_enrolment(in));
    if (in.good() && table.back().rank != rank)
      return base::fail(MORI_E_PROTOCOL, "the table has PE {} at place {}", table.back().rank,
                        rank);
  }
  if (!in.complete())
    return base::fail(MORI_E_PROTOCOL, "the table of {} bytes is damaged", bytes.size());
  return table;
}

}  // namespace mori::link
