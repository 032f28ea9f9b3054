// liveness.cpp - see liveness.hpp.
#include "protocol/liveness.hpp"

#include <algorithm>

namespace mori::link {

liveness::liveness(const topology& shape, const liveness_options& options, uint64_t now_ns)
    : shape_(shape),
      options_(options),
      interval_ns_(std::max(options.heartbeat_timeout_ns / 4, min_heartbeat_interval_ns)),
      next_beat_ns_(now_ns),
      last_tick_ns_(now_ns),
      heard_ns_(static_cast<size_t>(shape.link_count()), now_ns) {
  options_.heartbeat_timeout_ns = std::max(options.heartbeat_timeout_ns, 4 * interval_ns_);
}

std::string liveness::name(int rank) const {
  const auto at = static_cast<size_t>(rank);
  if (rank < 0 || at >= options_.process_ids.size()) return fmt::format("PE {}", rank);
  return fmt::format("PE {} (pid {})", rank, options_.process_ids[at]);
}

void liveness::on_heard(int link, uint64_t now_ns) {
  // Ranks may share several links: a sign on one is a sign of the rank.
  const int rank = shape_.rank_at(link);
  for (int other = 0; other < shape_.link_count(); ++other)
    if (shape_.rank_at(other) == rank) heard_ns_[static_cast<size_t>(other)] = now_ns;
}

void liveness::raise(mori_status status, int rank, const std::string& text) {
  if (fault_.rank >= 0) return;
  fault_ = {status, rank, text};
}

void liveness::declare_dead(int rank, const std::string& what) {
  // Who is itself declared dead sees connections close because of that.
  if (leaving_ || !expects_sign_of(rank) || dead(shape_.rank())) return;
  dead_.insert(rank);
  const std::string text = fmt::format("{} {}", name(rank), what);
  raise(MORI_E_PEER_DEAD, rank, text);
  outgoing_.push_back(
      {{message_kind::peer_dead, rank, shape_.rank(), 0, MORI_E_PEER_DEAD, text}, -1});
}

void liveness::on_closed(int link, const std::string& reason) {
  declare_dead(shape_.rank_at(link), reason);
}

void liveness::on_nonsense(int link, const std::string& what) {
  declare_dead(shape_.rank_at(link), fmt::format("broke the protocol: {}", what));
}

void liveness::on_notice(int link, const notice& news) {
  switch (news.kind) {
    case message_kind::peer_dead:
      if (news.about == shape_.rank()) {
        if (dead_.insert(news.about).second)
          raise(
              MORI_E_PEER_DEAD, news.about,
              fmt::format("this process was declared dead by PE {}: {}", news.reporter, news.text));
        return;
      }
      if (!expects_sign_of(news.about)) return;
      dead_.insert(news.about);
      raise(MORI_E_PEER_DEAD, news.about, news.text);
      break;
    case message_kind::aborted:
      if (!aborted_.insert(news.about).second) return;
      if (fault_.rank < 0) ended_before_abort_ = news.sequence;
      raise(MORI_E_ABORTED, news.about, news.text);
      break;
    case message_kind::left:
      if (news.about == shape_.rank() || !left_.emplace(news.about, news.sequence).second) return;
      departures_.push_back(news.about);
      break;
    default: return;
  }
  outgoing_.push_back({news, link});
}

bool liveness::on_tick(uint64_t now_ns) {
  // A process that did not run for so long (stopped, or starved) has not
  // listened either: silence counts from now on.
  const uint64_t gap = now_ns - last_tick_ns_;
  last_tick_ns_ = now_ns;
  if (gap > options_.heartbeat_timeout_ns / 2)
    for (uint64_t& heard : heard_ns_) heard = now_ns;

  for (int link = 0; link < shape_.link_count(); ++link) {
    const uint64_t heard = heard_ns_[static_cast<size_t>(link)];
    const uint64_t silent_ns = now_ns > heard ? now_ns - heard : 0;
    if (silent_ns >= options_.heartbeat_timeout_ns)
      declare_dead(shape_.rank_at(link),
                   fmt::format("silent for {:.1f} s", static_cast<double>(silent_ns) / 1e9));
  }
  if (now_ns < next_beat_ns_) return false;
  next_beat_ns_ = now_ns + interval_ns_;
  return true;
}

void liveness::abort(const std::string& why, uint64_t last_sequence) {
  if (leaving_ || !aborted_.insert(shape_.rank()).second) return;
  const std::string text =
      fmt::format("{} aborted: {}", name(shape_.rank()), why).substr(0, max_notice_text_bytes);
  raise(MORI_E_ABORTED, shape_.rank(), text);
  outgoing_.push_back(
      {{message_kind::aborted, shape_.rank(), shape_.rank(), last_sequence, MORI_E_ABORTED, text},
       -1});
}

void liveness::leave(uint64_t last_sequence) {
  if (leaving_) return;
  leaving_ = true;
  outgoing_.push_back(
      {{message_kind::left, shape_.rank(), shape_.rank(), last_sequence, MORI_OK, {}}, -1});
}

int liveness::missing_for(uint64_t sequence) const {
  for (const auto& [rank, last] : left_)
    if (last < sequence) return rank;
  return -1;
}

}  // namespace mori::link
