// rank_group.hpp - ranks as threads of this process, one context each, through
// the C ABI. The threads live as long as the group and run one body after
// another, so that a test can look at all ranks' results in between.
#pragma once

#include <mori/ep.h>
#include <mori/shmem.h>

#include <doctest/doctest.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace ep_test {

// "" for success, else "MORI_E_X: text".
template <class Function, class... Arguments>
std::string failure(Function function, Arguments... arguments) {
  mori_error error = MORI_ERROR_INIT;
  const mori_status status = function(arguments..., &error);
  if (status == MORI_OK) return "";
  return std::string(mori_ep_status_name(status)) + ": " + error.message;
}

inline bool begins_with(const std::string& text, const std::string& part) {
  return text.compare(0, part.size(), part) == 0;
}

struct group_options {
  int rank_count = 2;
  uint64_t heap_bytes = uint64_t{32} << 20;
  int worker_count = 1;
};

class rank_group {
 public:
  explicit rank_group(const group_options& with) : count_(with.rank_count) {
    mori_shmem_unique_id id{};
    REQUIRE(failure(mori_shmem_unique_id_create, &id) == "");
    contexts_.resize(size(), nullptr);
    std::vector<std::string> joined(size());
    for (int rank = 0; rank < count_; ++rank) threads_.emplace_back([this, rank] { serve(rank); });
    each([&](int rank) {
      mori_shmem_options mine{};
      mine.struct_size = sizeof mine;
      mine.pe = rank;
      mine.pe_count = count_;
      mine.heap_bytes = with.heap_bytes;
      mine.worker_count = with.worker_count;
      mine.bootstrap_timeout_ns = uint64_t{60} * 1'000'000'000;
      mine.wait_timeout_ns = uint64_t{60} * 1'000'000'000;
      joined[static_cast<size_t>(rank)] =
          failure(mori_shmem_create, &id, &mine, &contexts_[static_cast<size_t>(rank)]);
    });
    for (const std::string& text : joined) CHECK(text == "");
  }

  ~rank_group() {
    {
      const std::lock_guard guard(lock_);
      over_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    for (mori_shmem* context : contexts_) mori_shmem_destroy(context);
  }

  int count() const { return count_; }
  mori_shmem* context(int rank) const { return contexts_[static_cast<size_t>(rank)]; }

  // Runs body(rank) on all ranks at once and returns when the last is back.
  void each(std::function<void(int)> body) {
    std::unique_lock guard(lock_);
    body_ = std::move(body);
    running_ = count_;
    ++turn_;
    wake_.notify_all();
    idle_.wait(guard, [this] { return running_ == 0; });
  }

 private:
  size_t size() const { return static_cast<size_t>(count_); }

  void serve(int rank) {
    uint64_t seen = 0;
    for (;;) {
      std::unique_lock guard(lock_);
      wake_.wait(guard, [&] { return over_ || turn_ != seen; });
      if (over_) return;
      seen = turn_;
      guard.unlock();
      body_(rank);
      guard.lock();
      if (--running_ == 0) idle_.notify_all();
    }
  }

  const int count_;
  std::vector<mori_shmem*> contexts_;
  std::vector<std::thread> threads_;
  std::mutex lock_;
  std::condition_variable wake_, idle_;
  std::function<void(int)> body_;
  uint64_t turn_ = 0;
  int running_ = 0;
  bool over_ = false;
};

// One operator on every rank of a group.
class operators {
 public:
  operators(rank_group& group, const mori_ep_config& config)
      : group_(group), handles_(static_cast<size_t>(group.count()), nullptr) {
    std::vector<std::string> made(handles_.size());
    group_.each([&](int rank) {
      made[static_cast<size_t>(rank)] =
          failure(mori_ep_create, group_.context(rank), &config, &(*this)[rank]);
    });
    for (const std::string& text : made) REQUIRE(text == "");
  }
  ~operators() {
    for (mori_ep* handle : handles_) mori_ep_destroy(handle);
  }
  operators(const operators&) = delete;
  operators& operator=(const operators&) = delete;

  mori_ep*& operator[](int rank) { return handles_[static_cast<size_t>(rank)]; }
  rank_group& group() { return group_; }

 private:
  rank_group& group_;
  std::vector<mori_ep*> handles_;
};

}  // namespace ep_test
