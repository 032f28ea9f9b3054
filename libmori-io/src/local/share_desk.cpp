// share_desk.cpp - see share_desk.hpp.
#include "local/share_desk.hpp"

#include <algorithm>

namespace mori::io_core::local {
namespace {

template <size_t Size>
void write_array(link::byte_writer& out, const std::array<uint8_t, Size>& from) {
  out.raw(std::as_bytes(std::span(from)));
}

template <size_t Size>
std::array<uint8_t, Size> read_array(link::byte_reader& in) {
  std::array<uint8_t, Size> made{};
  const link::byte_span bytes = in.raw(Size);
  std::ranges::transform(bytes, made.begin(), [](std::byte b) { return static_cast<uint8_t>(b); });
  return made;
}

}  // namespace

void write(link::byte_writer& out, const invitation& what) {
  write_array(out, what.desk.name);
  write_array(out, what.desk.secret);
  out.u64(what.number);
  write_array(out, what.key);
}

invitation read_invitation(link::byte_reader& in) {
  invitation made;
  made.desk.name = read_array<16>(in);
  made.desk.secret = read_array<32>(in);
  made.number = in.u64();
  made.key = read_array<16>(in);
  return made;
}

base::result<std::unique_ptr<share_desk>> share_desk::open() {
  std::unique_ptr<share_desk> made(new share_desk);
  MORI_TRY(made->desk_, link::handover_desk::open([desk = made.get()](link::byte_span question) {
             return desk->answer(question);
           }));
  return made;
}

// The thread first, which looks at the offers.
share_desk::~share_desk() { desk_.reset(); }

invitation share_desk::offer(provider from) {
  invitation made;
  made.desk = desk_->address();
  made.key = wire::fresh_capability();
  const std::lock_guard guard(lock_);
  made.number = ++last_number_;
  offers_[made.number] = {made.key, std::move(from)};
  return made;
}

invitation share_desk::offer_lease() {
  return offer([](uint32_t) -> base::result<link::handed> { return link::handed{}; });
}

void share_desk::withdraw(uint64_t number) {
  offered gone;
  const std::lock_guard guard(lock_);
  const auto found = offers_.find(number);
  if (found == offers_.end()) return;
  gone = std::move(found->second);
  offers_.erase(found);
}

size_t share_desk::offer_count() const {
  const std::lock_guard guard(lock_);
  return offers_.size();
}

// Under the lock, so that what was withdrawn is not in use.
base::result<link::handed> share_desk::answer(link::byte_span question) {
  link::byte_reader in(question);
  const uint64_t number = in.u64();
  const wire::capability key = read_array<16>(in);
  const uint32_t index = in.u32();
  if (!in.complete()) return base::fail(MORI_E_PROTOCOL, "a question of {} bytes", question.size());
  const std::lock_guard guard(lock_);
  const auto found = offers_.find(number);
  // The same words for a wrong number and a wrong key: nothing to be learned by trying.
  if (found == offers_.end() || !wire::equal_in_constant_time(found->second.key, key))
    return base::fail(MORI_E_NOT_FOUND, "the memory is not offered (any more)");
  return found->second.from(index);
}

base::result<share_visit> share_visit::start(const invitation& from, base::deadline until) {
  MORI_TRY(auto visit, link::handover_visit::start(from.desk, -1, until));
  return share_visit(from, std::move(visit));
}

base::status check_lease(const invitation& from, base::deadline until) {
  MORI_TRY(share_visit visit, share_visit::start(from, until));
  MORI_TRY([[maybe_unused]] const link::handed nothing, visit.ask(0, until));
  return {};
}

base::result<link::handed> share_visit::ask(uint32_t index, base::deadline until) {
  link::byte_writer out;
  out.u64(from_.number);
  write_array(out, from_.key);
  out.u32(index);
  return visit_->ask(out.view(), until);
}

}  // namespace mori::io_core::local
