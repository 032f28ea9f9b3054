// collective.cpp - see collective.hpp.
#include "protocol/collective.hpp"

#include <algorithm>

namespace mori::link {
namespace {

// Failed operations that this rank has not begun yet. Others can run ahead
// only through operations that fail, so this is a bound on their patience.
constexpr size_t max_failed_early = 256;
// This operation, and the next one early.
constexpr size_t max_arrivals_of_link = 2;

std::string call_text(collective_kind kind, uint32_t block_bytes) {
  return kind == collective_kind::barrier ? "a barrier"
                                          : fmt::format("an allgather of {} bytes", block_bytes);
}

}  // namespace

collective::collective(const topology& shape)
    : shape_(shape),
      inbox_(static_cast<size_t>(shape.rounds())),
      outbox_(static_cast<size_t>(shape.rounds())) {}

// Round k moves what 2^k ranks contributed; the last one only what is missing.
uint64_t collective::round_bytes(int round) const {
  const int64_t known = int64_t{1} << round;
  return static_cast<uint64_t>(std::min<int64_t>(known, shape_.size() - known)) * block_bytes_;
}

uint64_t collective::start(collective_kind kind, byte_span mine) {
  ++sequence_;
  running_ = true;
  kind_ = kind;
  block_bytes_ = static_cast<uint32_t>(mine.size());
  round_ = 0;
  outcome_ = {};
  own_finding_.reset();
  buffer_.clear();
  buffer_.reserve(static_cast<size_t>(shape_.size()) * mine.size());
  buffer_.insert(buffer_.end(), mine.begin(), mine.end());
  std::ranges::fill(outbox_, departure{});
  if (const auto known = failed_early_.find(sequence_); known != failed_early_.end()) {
    end(known->second);
    return sequence_;
  }
  if (!outbox_.empty()) outbox_[0].due = true;
  for (int round = 0; round < shape_.rounds() && running_; ++round) {
    auto& inbox = inbox_[static_cast<size_t>(round)];
    while (!inbox.empty() && inbox.front().sequence < sequence_) inbox.pop_front();
    if (!inbox.empty()) agrees(inbox.front(), shape_.rank_at(shape_.in_link(round)));
  }
  advance();
  return sequence_;
}

base::status collective::on_part(int link, byte_span payload) {
  byte_reader in(payload);
  arrival head;
  head.sequence = in.u64();
  head.kind = static_cast<collective_kind>(in.u8());
  head.block_bytes = in.u32();
  head.total_bytes = in.u64();
  const uint64_t offset = in.u64();
  const byte_span data = in.rest();
  const bool sane =
      in.good() && !shape_.leads_out(link) &&
      (head.kind == collective_kind::barrier ? head.block_bytes == 0
                                             : head.kind == collective_kind::allgather) &&
      head.block_bytes <= max_block_bytes && data.size() <= max_part_bytes &&
      offset <= head.total_bytes && data.size() <= head.total_bytes - offset &&
      head.total_bytes <= uint64_t{head.block_bytes} * static_cast<uint64_t>(shape_.size());
  if (!sane) return base::fail(MORI_E_PROTOCOL, "a part of a collective makes no sense");
  // Late news of an operation that has ended here: it failed.
  if (head.sequence < sequence_ || (head.sequence == sequence_ && !running_)) return {};
  if (failed_early_.contains(head.sequence)) return {};

  const int round = shape_.round_of(link);
  const uint64_t sequence = head.sequence;
  auto& inbox = inbox_[static_cast<size_t>(round)];
  MORI_CHECK(store(inbox, std::move(head), offset, data));
  if (sequence == sequence_ && running_) {
    if (agrees(inbox.front(), shape_.rank_at(link))) advance();
  }
  return {};
}

base::status collective::store(std::deque<arrival>& inbox, arrival&& head, uint64_t offset,
                               byte_span data) {
  // What failed before its last part came stays incomplete; the link has moved on.
  while (!inbox.empty() && inbox.front().sequence < std::max(sequence_, uint64_t{1}))
    inbox.pop_front();
  std::erase_if(inbox, [&](const arrival& a) {
    return a.sequence != head.sequence && failed_early_.contains(a.sequence);
  });
  if (inbox.empty() || inbox.back().sequence != head.sequence) {
    if (!inbox.empty() && inbox.back().sequence > head.sequence)
      return base::fail(MORI_E_PROTOCOL, "collective {} came after {}", head.sequence,
                        inbox.back().sequence);
    if (inbox.size() >= max_arrivals_of_link)
      return base::fail(MORI_E_PROTOCOL, "collective {} came while {} is awaited", head.sequence,
                        inbox.front().sequence);
    inbox.push_back(std::move(head));
  }
  arrival& a = inbox.back();
  if (a.complete || a.data.size() != offset)
    return base::fail(MORI_E_PROTOCOL, "byte {} of collective {} came, expected {}", offset,
                      a.sequence, a.data.size());
  a.data.insert(a.data.end(), data.begin(), data.end());
  a.complete = a.data.size() == a.total_bytes;
  return {};
}

// False also when the arrival belongs to a later operation.
bool collective::agrees(const arrival& a, int from) {
  if (a.sequence != sequence_ || !running_) return false;
  if (a.kind == kind_ && a.block_bytes == block_bytes_) return true;
  own_finding_ = base::fail(MORI_E_MISMATCH, "PE {} called {}, PE {} {} (collective {})", from,
                            call_text(a.kind, a.block_bytes), shape_.rank(),
                            call_text(kind_, block_bytes_), sequence_);
  end(*own_finding_);
  return false;
}

void collective::advance() {
  while (running_ && round_ < shape_.rounds()) {
    auto& inbox = inbox_[static_cast<size_t>(round_)];
    if (inbox.empty() || inbox.front().sequence != sequence_ || !inbox.front().complete) return;
    arrival& a = inbox.front();
    if (a.total_bytes != round_bytes(round_)) {
      own_finding_ = base::fail(MORI_E_PROTOCOL, "round {} of {} brought {} bytes instead of {}",
                                round_, describe(), a.total_bytes, round_bytes(round_));
      return end(*own_finding_);
    }
    buffer_.insert(buffer_.end(), a.data.begin(), a.data.end());
    inbox.pop_front();
    ++round_;
    if (round_ < shape_.rounds()) outbox_[static_cast<size_t>(round_)].due = true;
  }
  // The blocks are sent from buffer_: it must live until all are gone.
  const auto pending = [](const departure& d) { return d.due && !d.sent; };
  if (running_ && std::ranges::none_of(outbox_, pending)) end({});
}

std::optional<collective::part> collective::peek(int link) const {
  if (!running_ || !shape_.leads_out(link)) return std::nullopt;
  const departure& d = outbox_[static_cast<size_t>(shape_.round_of(link))];
  if (!d.due || d.sent) return std::nullopt;
  const uint64_t total = round_bytes(shape_.round_of(link));
  byte_writer out;
  out.u64(sequence_);
  out.u8(static_cast<uint8_t>(kind_));
  out.u32(block_bytes_);
  out.u64(total);
  out.u64(d.sent_bytes);
  const size_t size = std::min<uint64_t>(total - d.sent_bytes, max_part_bytes);
  return part{out.take(), byte_span(buffer_).subspan(d.sent_bytes, size)};
}

void collective::commit(int link) {
  const int round = shape_.round_of(link);
  departure& d = outbox_[static_cast<size_t>(round)];
  const uint64_t total = round_bytes(round);
  d.sent_bytes += std::min<uint64_t>(total - d.sent_bytes, max_part_bytes);
  d.sent = d.sent_bytes == total;
  if (d.sent) advance();
}

void collective::fail(uint64_t sequence, const base::failure& why) {
  if (sequence == sequence_ && running_) return end(why);
  if (sequence <= sequence_) return;
  failed_early_.emplace(sequence, why);
  if (failed_early_.size() > max_failed_early) failed_early_.erase(failed_early_.begin());
}

void collective::all_began(uint64_t sequence) {
  if (running_ && kind_ == collective_kind::barrier && sequence_ <= sequence) end({});
}

std::optional<base::failure> collective::take_own_finding() {
  return std::exchange(own_finding_, std::nullopt);
}

void collective::end(base::status how) {
  running_ = false;
  outcome_ = std::move(how);
  failed_early_.erase(failed_early_.begin(), failed_early_.upper_bound(sequence_));
  for (auto& inbox : inbox_)
    std::erase_if(inbox, [&](const arrival& a) { return a.sequence <= sequence_; });
}

byte_span collective::block(int rank) const {
  const int position = (shape_.rank() - rank + shape_.size()) % shape_.size();
  return byte_span(buffer_).subspan(static_cast<size_t>(position) * block_bytes_, block_bytes_);
}

int collective::awaited_rank() const {
  if (!running_) return -1;
  if (round_ < shape_.rounds()) return shape_.rank_at(shape_.in_link(round_));
  for (int round = 0; round < shape_.rounds(); ++round)
    if (!outbox_[static_cast<size_t>(round)].sent) return shape_.rank_at(shape_.out_link(round));
  return -1;
}

std::string collective::describe() const {
  return fmt::format("{} (collective {})",
                     kind_ == collective_kind::barrier ? "barrier" : "allgather", sequence_);
}

}  // namespace mori::link
