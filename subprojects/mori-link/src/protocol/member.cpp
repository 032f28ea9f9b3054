// member.cpp - see member.hpp.
#include "protocol/member.hpp"

namespace mori::link {
namespace {

constexpr size_t max_failures_remembered = 256;

}  // namespace

member::member(const topology& shape, const liveness_options& options, uint64_t now_ns)
    : shape_(shape),
      work_(shape),
      alive_(shape, options, now_ns),
      progress_(static_cast<size_t>(shape.link_count())) {}

void member::on_frame(int link, uint16_t kind, byte_span payload, uint64_t now_ns) {
  const int from = shape_.rank_at(link);
  if (alive_.dead(from)) return;  // it was told, and is on its way out
  alive_.on_heard(link, now_ns);
  switch (const auto what = static_cast<message_kind>(kind); what) {
    case message_kind::heartbeat: on_heartbeat(link, payload); break;
    case message_kind::part_of_collective: {
      const auto outcome = work_.on_part(link, payload);
      if (!outcome) alive_.on_nonsense(link, outcome.error().text);
      break;
    }
    case message_kind::collective_failed:
    case message_kind::peer_dead:
    case message_kind::aborted:
    case message_kind::left: on_news(link, what, payload); break;
    default: alive_.on_nonsense(link, fmt::format("a frame of kind {}", kind)); break;
  }
  settle();
}

void member::on_closed(int link, const std::string& reason) {
  alive_.on_closed(link, reason);
  settle();
}

void member::on_nonsense(int link, const std::string& what) {
  alive_.on_nonsense(link, what);
  settle();
}

void member::on_heartbeat(int link, byte_span payload) {
  byte_reader in(payload);
  const uint64_t begun = in.u64();
  const int32_t late = in.i32();
  if (!in.complete() || late >= shape_.size())
    return alive_.on_nonsense(link, "a damaged heartbeat");
  progress_[static_cast<size_t>(link)] = {begun, late};
}

void member::on_news(int link, message_kind kind, byte_span payload) {
  const auto news = decode_notice(kind, payload);
  if (!news) return alive_.on_nonsense(link, news.error().text);
  const bool says_failure = kind != message_kind::left;
  if (news->about < 0 || news->about >= shape_.size() || (news->status != MORI_OK) != says_failure)
    return alive_.on_nonsense(
        link, fmt::format("news about PE {} with status {}", news->about, news->status));
  if (kind == message_kind::collective_failed) return on_collective_failed(link, *news);
  alive_.on_notice(link, *news);
}

void member::on_collective_failed(int link, const notice& news) {
  if (!failures_seen_.insert(news.sequence).second) return;
  if (failures_seen_.size() > max_failures_remembered) failures_seen_.erase(failures_seen_.begin());
  spread(news, link);
  work_.fail(news.sequence, {news.status, 0, news.text});
}

void member::on_tick(uint64_t now_ns) {
  if (alive_.on_tick(now_ns)) {
    byte_writer out;
    out.u64(work_.sequence());
    out.i32(late_rank());
    const byte_vector beat = out.take();
    for (int link = 0; link < shape_.link_count(); ++link)
      if (!finished(link)) outbox_.push_back({link, message_kind::heartbeat, beat});
  }
  settle();
}

base::status member::start(collective_kind kind, byte_span mine) {
  if (const group_fault* f = fault()) return base::failure{f->status, 0, f->text};
  work_.start(kind, mine);
  settle();
  return {};
}

// The awaited neighbour may itself wait for somebody: ask what it last said.
int member::late_rank() const {
  const int awaited = work_.awaited_rank();
  if (awaited < 0) return -1;
  for (int link = 0; link < shape_.link_count(); ++link) {
    if (shape_.rank_at(link) != awaited) continue;
    const progress& p = progress_[static_cast<size_t>(link)];
    if (p.begun >= work_.sequence() && p.late >= 0 && p.late != shape_.rank()) return p.late;
  }
  return awaited;
}

void member::give_up(uint64_t waited_ns) {
  if (!work_.running()) return;
  const base::failure why =
      base::fail(MORI_E_TIMEOUT, "{}: PE {} waited {:.1f} s for {}", work_.describe(),
                 shape_.rank(), static_cast<double>(waited_ns) / 1e9, alive_.name(late_rank()));
  const uint64_t sequence = work_.sequence();
  work_.fail(sequence, why);
  spread_failure(sequence, why);
  settle();
}

void member::abort(const std::string& why) {
  alive_.abort(why, work_.sequence() - (work_.running() ? 1 : 0));
  settle();
}

void member::leave() {
  // An operation in progress is not one that this rank has taken part in.
  const bool unfinished = work_.running();
  alive_.leave(work_.sequence() - (unfinished ? 1 : 0));
  if (unfinished)
    work_.fail(work_.sequence(), base::fail(MORI_E_STATE, "{}: PE {} left the group meanwhile",
                                            work_.describe(), shape_.rank()));
  settle();
}

void member::commit_part(int link) {
  work_.commit(link);
  settle();
}

bool member::finished(int link) const {
  const int rank = shape_.rank_at(link);
  return alive_.dead(rank) || alive_.left(rank);
}

void member::spread(const notice& news, int except_link) {
  const byte_vector payload = encode(news);
  for (int link = 0; link < shape_.link_count(); ++link)
    if (link != except_link) outbox_.push_back({link, news.kind, payload});
}

void member::spread_failure(uint64_t sequence, const base::failure& why) {
  failures_seen_.insert(sequence);
  spread({message_kind::collective_failed, shape_.rank(), shape_.rank(), sequence, why.status,
          why.text},
         -1);
}

// Consequences of whatever just happened.
void member::settle() {
  if (const auto found = work_.take_own_finding()) spread_failure(work_.sequence(), *found);
  for (const auto& each : alive_.take_outgoing()) spread(each.news, each.except_link);
  // Whoever aborts right after a barrier must not make it fail for those who still wait in it.
  if (fault() != nullptr) work_.all_began(alive_.ended_before_abort());
  if (!work_.running()) return;
  if (const group_fault* f = fault()) return work_.fail(work_.sequence(), {f->status, 0, f->text});
  const int gone = alive_.missing_for(work_.sequence());
  if (gone < 0) return;
  const base::failure why = base::fail(MORI_E_PEER_DEAD, "{}: {} has left the group",
                                       work_.describe(), alive_.name(gone));
  const uint64_t sequence = work_.sequence();
  work_.fail(sequence, why);
  spread_failure(sequence, why);
}

}  // namespace mori::link
