// message.hpp - kinds of frames between members of a group, and the notice,
// which is the news that travels from neighbour to neighbour until everyone
// has it. Read collective.hpp and liveness.hpp next.
#pragma once

#include <mori/base/result.hpp>
#include <mori/link/bytes.hpp>

namespace mori::link {

enum class message_kind : uint16_t {
  // bootstrap/rendezvous.hpp, between a joining rank and the rendezvous
  enrol = 1,
  waiting = 2,
  table = 3,
  ready = 4,
  go = 5,
  failed = 6,
  give_up = 7,
  // bootstrap/joiner.hpp, first frame on a neighbour connection
  attach = 16,
  // between neighbours of a complete group
  heartbeat = 32,
  part_of_collective = 33,
  collective_failed = 34,
  peer_dead = 35,
  aborted = 36,
  left = 37,
  // group/descriptor.hpp
  descriptor_request = 64,
  descriptor_grant = 65,
};

struct notice {
  message_kind kind = message_kind::peer_dead;
  int32_t about = -1;     // whom it concerns
  int32_t reporter = -1;  // who noticed first
  uint64_t sequence = 0;  // of the collective: the failed one, or the last one of `about`
  mori_status status = MORI_OK;
  std::string text;
};

inline constexpr size_t max_notice_text_bytes = 400;

inline byte_vector encode(const notice& n) {
  byte_writer out;
  out.i32(n.about);
  out.i32(n.reporter);
  out.u64(n.sequence);
  out.i32(n.status);
  out.text(std::string_view(n.text).substr(0, max_notice_text_bytes));
  return out.take();
}

inline base::result<notice> decode_notice(message_kind kind, byte_span payload) {
  byte_reader in(payload);
  notice n;
  n.kind = kind;
  n.about = in.i32();
  n.reporter = in.i32();
  n.sequence = in.u64();
  n.status = in.i32();
  n.text = in.text(max_notice_text_bytes);
  if (!in.complete())
    return base::fail(MORI_E_PROTOCOL, "a notice of {} bytes is damaged", payload.size());
  return n;
}

}  // namespace mori::link
