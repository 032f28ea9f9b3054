// mesh.cpp - see mesh.hpp.
#include "bootstrap/mesh.hpp"

#include <algorithm>
#include <set>

#include "bootstrap/acceptor.hpp"
#include "bootstrap/dialer.hpp"
#include "bootstrap/roster.hpp"
#include "protocol/message.hpp"

namespace mori::link {
namespace {

constexpr uint64_t look_around_ns = 100 * base::ns_per_ms;
constexpr size_t spare_pending = 64;

class mesh {
 public:
  mesh(mesh_options&& options, base::deadline until)
      : options_(std::move(options)), until_(until), entrance_(make_entrance()) {
    const uint64_t now = base::now_ns();
    for (size_t at = 0; at < options_.peers.size(); ++at)
      for (int lane = 0; lane < options_.lane_count; ++lane) {
        const int rank = options_.peers[at];
        missing_.insert({rank, lane});
        if (rank < options_.own_rank) dial(rank, lane, options_.addresses[at], now);
      }
  }

  base::result<std::vector<peer_link>> run() {
    while (!missing_.empty()) {
      MORI_CHECK(options_.still_sound());
      if (until_.passed()) return late();
      list_.clear();
      entrance_.watch(list_);
      uint64_t due = std::min(base::now_ns() + look_around_ns, until_.when_ns());
      due = std::min(due, entrance_.next_due_ns());
      for (const auto& call : calls_) {
        call->how.watch(list_);
        due = std::min(due, call->how.next_due_ns());
      }
      list_.wait(due);
      MORI_CHECK(step(base::now_ns()));
    }
    return std::move(made_);
  }

 private:
  struct call {
    int rank;
    int lane;
    dialer how;
  };

  acceptor make_entrance() {
    acceptor_options how;
    how.secret = options_.secret;
    how.job = options_.job;
    // Each honest caller may try all addresses at once.
    how.max_pending = spare_pending + tcp::max_addresses * options_.peers.size() *
                                          static_cast<size_t>(options_.lane_count);
    return acceptor(std::move(options_.listener), how);
  }

  void dial(int rank, int lane, const std::vector<tcp::address>& addresses, uint64_t now) {
    dialer_options how;
    how.addresses = addresses;
    how.secret = options_.secret;
    how.job = options_.job;
    how.self = {connection_purpose::data, options_.own_rank, rank};
    calls_.push_back(std::make_unique<call>(call{rank, lane, dialer(how, now)}));
  }

  base::status step(uint64_t now) {
    entrance_.step(list_, now);
    for (auto& arrival : entrance_.take_arrivals()) adopt(std::move(arrival));
    for (auto& each : calls_) {
      each->how.step(list_, now);
      if (const base::failure* why = each->how.failure())
        return base::failure{why->status, why->os_errno,
                             fmt::format("cannot reach PE {}: {}", each->rank, why->text)};
      auto channel = each->how.take();
      if (!channel) continue;
      byte_writer out;
      out.i32(each->lane);
      (void)channel->send(static_cast<uint16_t>(message_kind::attach), {out.view()});
      keep(each->rank, each->lane, std::move(channel));
      each.reset();
    }
    std::erase(calls_, nullptr);
    return {};
  }

  void adopt(acceptor::arrival arrival) {
    byte_reader in(arrival.payload);
    const int lane = in.i32();
    const hello& who = arrival.channel->peer();
    const bool proper =
        in.complete() && arrival.kind == static_cast<uint16_t>(message_kind::attach) &&
        who.purpose == connection_purpose::data && who.to_rank == options_.own_rank &&
        who.from_rank > options_.own_rank && missing_.contains({who.from_rank, lane});
    if (proper) keep(who.from_rank, lane, std::move(arrival.channel));
  }

  void keep(int rank, int lane, std::unique_ptr<tcp::channel> channel) {
    missing_.erase({rank, lane});
    tcp::limit_unanswered(channel->fd(), options_.unanswered_limit_ns);
    made_.push_back({rank, lane, std::move(channel)});
  }

  base::failure late() const {
    std::set<int> ranks;
    for (const auto& [rank, lane] : missing_) ranks.insert(rank);
    std::string text = fmt::format("no data connection with PE {} in time",
                                   list_ranks({ranks.begin(), ranks.end()}));
    for (const auto& each : calls_)
      if (each->rank == *ranks.begin()) text += ": " + each->how.describe();
    return {MORI_E_TIMEOUT, 0, text};
  }

  mesh_options options_;
  const base::deadline until_;
  acceptor entrance_;
  std::vector<std::unique_ptr<call>> calls_;
  std::set<std::pair<int, int>> missing_;  // rank, lane
  std::vector<peer_link> made_;
  tcp::poll_list list_;
};

}  // namespace

base::result<std::vector<peer_link>> connect_mesh(mesh_options options, base::deadline until) {
  return mesh(std::move(options), until).run();
}

}  // namespace mori::link
