// group.cpp - the group as callers see it: checks of arguments and of fork(),
// the node layout, and the life of the engine's thread.
#include <mori/link/group.hpp>

#include <mori/base/log.hpp>
#include <mori/base/process.hpp>
#include <mori/base/quiet_signals.hpp>

#include <pthread.h>

#include <algorithm>
#include <map>
#include <system_error>

#include "bootstrap/joiner.hpp"
#include "group/engine.hpp"

namespace mori::link {
namespace {

class group_over_tcp final : public group {
 public:
  explicit group_over_tcp(std::shared_ptr<engine> motor) : engine_(std::move(motor)) {
    std::map<std::string, int> seen;
    for (const enrolment& e : engine_->table()) {
      const auto [at, fresh] = seen.emplace(e.where.node_id, static_cast<int>(seen.size()));
      (void)fresh;
      node_of_.push_back(at->second);
    }
    node_count_ = static_cast<int>(seen.size());
    for (int other = 0; other < size(); ++other)
      if (node_of_[static_cast<size_t>(other)] == node_of_[static_cast<size_t>(rank())])
        local_ranks_.push_back(other);
  }

  ~group_over_tcp() override {
    if (forked()) {  // neither the thread nor a trustworthy lock is here
      new std::shared_ptr<engine>(std::move(engine_));
      (void)thread_.release();
      return;
    }
    engine_->stop();
    end_thread();
  }

  base::status start_thread() {
    const base::quiet_signals quiet;
    try {
      // The engine is owned by the group and by its thread, which may outlive
      // a group that is destroyed in the fault handler.
      thread_ = std::make_unique<std::thread>([motor = engine_] {
        pthread_setname_np(pthread_self(), "mori-group");
        motor->run();
      });
    } catch (const std::system_error& e) {
      return base::fail_os(e.code().value(), "no thread for the group");
    }
    return {};
  }

  int rank() const override { return engine_->shape().rank(); }
  int size() const override { return engine_->shape().size(); }
  int node_of(int rank) const override { return in_range(rank) ? node_of_[at(rank)] : -1; }
  int node_count() const override { return node_count_; }
  std::span<const int> local_ranks() const override { return local_ranks_; }
  int process_id_of(int rank) const override {
    return in_range(rank) ? engine_->table()[at(rank)].process_id : -1;
  }

  base::status allgather(byte_span mine, std::span<std::byte> all, base::deadline until) override {
    MORI_CHECK(check_fork());
    if (mine.size() > max_block_bytes)
      return base::fail(MORI_E_INVALID, "allgather of {} bytes, the limit is {}", mine.size(),
                        max_block_bytes);
    if (all.size() != mine.size() * static_cast<size_t>(size()))
      return base::fail(MORI_E_INVALID, "allgather of {} bytes by {} ranks into {} bytes",
                        mine.size(), size(), all.size());
    return engine_->collective(collective_kind::allgather, mine, all, until);
  }

  base::status barrier(base::deadline until) override {
    MORI_CHECK(check_fork());
    return engine_->collective(collective_kind::barrier, {}, {}, until);
  }

  base::result<base::unique_fd> share_descriptor(int owner_rank, int fd,
                                                 base::deadline until) override {
    MORI_CHECK(check_fork());
    if (!std::ranges::binary_search(local_ranks_, owner_rank))
      return base::fail(MORI_E_INVALID, "PE {} is not on the node of PE {}", owner_rank, rank());
    return engine_->share(owner_rank, fd, local_ranks_, until);
  }

  base::result<std::vector<peer_link>> open_links(std::span<const int> peers, int lane_count,
                                                  base::deadline until) override {
    MORI_CHECK(check_fork());
    for (const int peer : peers)
      if (!in_range(peer) || peer == rank())
        return base::fail(MORI_E_INVALID, "PE {} cannot be connected with PE {}", rank(), peer);
    return engine_->open_links(peers, lane_count, until);
  }

  void on_fault(std::function<void(const group_fault&)> handler) override {
    if (!forked()) engine_->on_fault(std::move(handler));
  }

  std::unique_ptr<group_fault> fault() const override {
    if (!forked()) return engine_->fault();
    return std::make_unique<group_fault>(group_fault{MORI_E_STATE, rank(), fork_text});
  }

  void on_leave(std::function<void(int)> handler) override {
    if (!forked()) engine_->on_leave(std::move(handler));
  }

  void abort(const std::string& why) override {
    if (!forked()) engine_->abort(why);
  }

  void leave() override {
    if (forked()) return;
    engine_->leave();
    end_thread();
  }

 private:
  static constexpr const char* fork_text = "the group was made before fork()";

  bool forked() const { return generation_ != base::fork_generation(); }
  base::status check_fork() const {
    if (forked()) return base::fail(MORI_E_STATE, "{}", fork_text);
    return {};
  }
  bool in_range(int rank) const { return rank >= 0 && rank < size(); }
  static size_t at(int rank) { return static_cast<size_t>(rank); }

  void end_thread() {
    if (!thread_ || !thread_->joinable()) return;
    if (thread_->get_id() == std::this_thread::get_id())
      thread_->detach();  // called by the fault handler; the thread ends behind it
    else
      thread_->join();
  }

  const uint32_t generation_ = base::fork_generation();
  std::shared_ptr<engine> engine_;
  std::unique_ptr<std::thread> thread_;
  std::vector<int> node_of_;
  std::vector<int> local_ranks_;
  int node_count_ = 0;
};

}  // namespace

base::result<std::unique_ptr<group>> group::join(const group_options& options) {
  MORI_TRY(joined_group joined, join_by_id(options));
  MORI_TRY(auto motor, engine::create(std::move(joined)));
  auto made = std::make_unique<group_over_tcp>(std::move(motor));
  MORI_CHECK(made->start_thread());
  base::log(MORI_LOG_INFO, "PE {} of {} joined: {} nodes, {} local ranks", made->rank(),
            made->size(), made->node_count(), made->local_ranks().size());
  return std::unique_ptr<group>(std::move(made));
}

}  // namespace mori::link
