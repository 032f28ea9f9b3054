// roster.hpp - who has enrolled for a group: checks that the ranks fit
// together, says who is missing, and becomes the table that every rank gets.
// No I/O. rendezvous.hpp fills it.
#pragma once

#include <mori/base/result.hpp>
#include <mori/link/tcp/address.hpp>
#include <mori/link/transport.hpp>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace mori::link {

inline constexpr int max_group_size = 4096;
inline constexpr size_t max_node_id_bytes = 255;

struct enrolment {
  int32_t rank = 0;
  int32_t size = 0;
  int32_t process_id = 0;
  uint64_t heartbeat_timeout_ns = 0;
  place where;
  std::array<uint8_t, 16> socket_name{};  // of its unix socket, descriptor.hpp
  std::vector<tcp::address> addresses;    // where its neighbours connect to
};

void write_enrolment(byte_writer& out, const enrolment& e);
enrolment read_enrolment(byte_reader& in);  // in.good() says whether it was one
// Longest enrolment; limits frames before they are read.
inline constexpr uint32_t max_enrolment_bytes = 512;

class roster {
 public:
  // MORI_E_MISMATCH: names both sides of the contradiction.
  base::status add(enrolment e);
  int size() const { return static_cast<int>(entries_.size()); }
  int present_count() const { return present_; }
  bool complete() const { return present_ > 0 && present_ == size(); }
  bool has(int rank) const { return entries_[static_cast<size_t>(rank)].has_value(); }
  std::string missing_text() const;  // "2, 5, 6 and 12 more of 20"

  byte_vector encode() const;  // once complete
  static base::result<std::vector<enrolment>> decode(byte_span bytes, int size);

 private:
  std::vector<std::optional<enrolment>> entries_;
  int first_rank_ = -1;
  int first_process_id_ = 0;
  int present_ = 0;
};

// "2, 5, 6 and 12 more"; at most `shown` are named.
std::string list_ranks(const std::vector<int>& ranks, size_t shown = 8);

}  // namespace mori::link
