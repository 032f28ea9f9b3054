// member_program.cpp - one rank of a group in a process of its own, for the
// tests that stop and kill processes. Reads commands from stdin, one a line,
// and answers each with one line on stdout.
#include <mori/link/group.hpp>
#include <mori/link/segment.hpp>

#include <unistd.h>

#include <condition_variable>
#include <iostream>
#include <mutex>
#include <sstream>

namespace base = mori::base;
using namespace mori::link;

namespace {

struct faults {
  std::mutex lock;
  std::condition_variable changed;
  std::unique_ptr<group_fault> seen;
};

std::string hex(const unique_id& id) {
  std::string text;
  for (const uint8_t byte : id.bytes) text += fmt::format("{:02x}", byte);
  return text;
}

unique_id from_hex(const std::string& text) {
  unique_id id;
  for (size_t i = 0; i < id.bytes.size() && 2 * i + 1 < text.size(); ++i)
    id.bytes[i] = static_cast<uint8_t>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
  return id;
}

std::string answer_of(const base::status& outcome) {
  return outcome ? "ok" : fmt::format("fail {} {}", outcome.error().status, outcome.error().text);
}

class session {
 public:
  std::string obey(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb == "make") return make();
    if (verb == "join") return join(words);
    if (!group_) return "fail 2 no group";
    uint64_t limit_ms = 0;
    if (verb == "barrier" && words >> limit_ms) return answer_of(group_->barrier(in(limit_ms)));
    if (verb == "allgather" && words >> limit_ms) return allgather(limit_ms);
    if (verb == "share") return share(words);
    if (verb == "fault" && words >> limit_ms) return fault(limit_ms);
    if (verb == "leave") return group_->leave(), "ok";
    return "fail 1 what is '" + line + "'?";
  }

 private:
  static base::deadline in(uint64_t limit_ms) {
    return base::deadline::after(limit_ms * base::ns_per_ms);
  }

  std::string make() {
    const auto id = make_unique_id();
    return id ? hex(*id) : answer_of(id.error());
  }

  std::string join(std::istringstream& words) {
    std::string id;
    group_options options;
    uint64_t join_ms = 0, heartbeat_ms = 0;
    words >> id >> options.rank >> options.size >> join_ms >> heartbeat_ms;
    options.id = from_hex(id);
    options.join_timeout_ns = join_ms * base::ns_per_ms;
    options.heartbeat_timeout_ns = heartbeat_ms * base::ns_per_ms;
    auto joined = group::join(options);
    if (!joined) return answer_of(joined.error());
    group_ = std::move(*joined);
    group_->on_fault([this](const group_fault& what) {
      const std::lock_guard guard(faults_.lock);
      faults_.seen = std::make_unique<group_fault>(what);
      faults_.changed.notify_all();
    });
    return "ok";
  }

  std::string allgather(uint64_t limit_ms) {
    const auto size = static_cast<size_t>(group_->size());
    constexpr size_t bytes = 1000;
    const std::vector<std::byte> mine(bytes, static_cast<std::byte>(group_->rank() + 1));
    std::vector<std::byte> all(bytes * size);
    const auto outcome = group_->allgather(mine, all, in(limit_ms));
    if (!outcome) return answer_of(outcome);
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i] != static_cast<std::byte>(i / bytes + 1)) return fmt::format("wrong byte {}", i);
    return "ok";
  }

  // The owner shares a file that says who it is.
  std::string share(std::istringstream& words) {
    int owner = -1;
    uint64_t limit_ms = 0;
    words >> owner >> limit_ms;
    auto file = segment::create_file(4096, "");
    if (!file) return answer_of(file.error());
    const std::string mark =
        fmt::format("from PE {} pid {}", group_->rank(), group_->process_id_of(group_->rank()));
    (void)!::pwrite(file->get(), mark.data(), mark.size(), 0);
    auto got = group_->share_descriptor(owner, file->get(), in(limit_ms));
    if (!got) return answer_of(got.error());
    char text[64] = {};
    (void)!::pread(got->get(), text, sizeof text - 1, 0);
    const std::string wanted =
        fmt::format("from PE {} pid {}", owner, group_->process_id_of(owner));
    return text == wanted ? "ok" : fmt::format("wrong file '{}'", text);
  }

  std::string fault(uint64_t limit_ms) {
    std::unique_lock held(faults_.lock);
    faults_.changed.wait_for(held, std::chrono::milliseconds(limit_ms),
                             [&] { return faults_.seen != nullptr; });
    if (!faults_.seen) return "none";
    return fmt::format("fault {} {} {}", faults_.seen->status, faults_.seen->rank,
                       faults_.seen->text);
  }

  faults faults_;
  std::unique_ptr<group> group_;
};

}  // namespace

int main() {
  session here;
  std::string line;
  while (std::getline(std::cin, line) && line != "quit") std::cout << here.obey(line) << std::endl;
  return 0;
}
