// conversation.cpp - see conversation.hpp.
#include "network/conversation.hpp"

#include <mori/shmem.h>

#include <algorithm>

namespace mori::shmem_core {
namespace {

bool is_signal(int operation) {
  return operation == MORI_SHMEM_SIGNAL_SET || operation == MORI_SHMEM_SIGNAL_ADD;
}

bool is_atomic(int operation) {
  return (operation >= MORI_SHMEM_AMO_INC && operation <= MORI_SHMEM_AMO_XOR) ||
         (operation >= MORI_SHMEM_AMO_FETCH && operation <= MORI_SHMEM_AMO_COMPARE_SWAP);
}

bool is_put(const mori_shmem_command_v1& what) {
  return what.kind == MORI_SHMEM_COMMAND_PUT || what.kind == MORI_SHMEM_COMMAND_INLINE;
}

bool fits(uint64_t offset, uint64_t bytes, uint64_t limit) {
  return offset <= limit && bytes <= limit - offset;
}

constexpr uint64_t largest_inline_bytes = 16;

}  // namespace

record_kind awaited_answer(const mori_shmem_command_v1& command) {
  if (command.kind == MORI_SHMEM_COMMAND_GET) return record_kind::data;
  const bool wants_value = command.kind == MORI_SHMEM_COMMAND_ATOMIC && command.signal != 0;
  return wants_value ? record_kind::before : record_kind::done;
}

base::status conversation::check(const mori_shmem_command_v1& what) const {
  const bool known = what.kind >= MORI_SHMEM_COMMAND_PUT && what.kind <= MORI_SHMEM_COMMAND_ATOMIC;
  if (!known) return base::fail(MORI_E_INVALID, "a command of kind {}", what.kind);
  if (!fits(what.remote, what.bytes, heap_.bytes))
    return base::fail(MORI_E_INVALID, "a command for {} bytes at offset {:#x} of a heap of {:#x}",
                      what.bytes, what.remote, heap_.bytes);
  if (what.kind == MORI_SHMEM_COMMAND_INLINE && what.bytes > largest_inline_bytes)
    return base::fail(MORI_E_INVALID, "an inline put of {} bytes, the limit is {}", what.bytes,
                      largest_inline_bytes);
  if (what.kind == MORI_SHMEM_COMMAND_ATOMIC &&
      (!is_atomic(what.operation) || (what.bytes != 4 && what.bytes != 8) ||
       what.remote % what.bytes != 0))
    return base::fail(MORI_E_INVALID, "atomic {} on {} bytes at offset {:#x}", what.operation,
                      what.bytes, what.remote);
  if (is_put(what) && what.operation != 0 &&
      (!is_signal(what.operation) || what.signal % 8 != 0 || !fits(what.signal, 8, heap_.bytes)))
    return base::fail(MORI_E_INVALID, "signal {} at offset {:#x} of a heap of {:#x}",
                      what.operation, what.signal, heap_.bytes);
  const bool is_empty = what.bytes == 0 && !(is_put(what) && what.operation != 0);
  if (is_empty) return base::fail(MORI_E_INVALID, "a command of 0 bytes");
  return {};
}

base::status conversation::add(const mori_shmem_command_v1& what, const origin& from) {
  MORI_CHECK(check(what));
  commands_.push_back({what, from, 0});
  return {};
}

// --- Speaking

bool conversation::wants_to_speak() const {
  return has_request() || !answers_.empty() || goodbye_due_;
}

base::result<conversation::frame_text> conversation::next_frame() {
  text_.clear();
  bulk_ = {};
  bool full = false;
  // By turns, so that neither side's bulk keeps the other waiting.
  requests_first_ = !requests_first_;
  for (const bool requests : {requests_first_, !requests_first_}) {
    if (full) break;
    MORI_TRY(full, requests ? say_requests() : say_answers());
  }
  if (goodbye_due_ && !has_request() && answers_.empty() && !full) {
    append(text_, {.kind = record_kind::goodbye});
    goodbye_due_ = false;
  }
  return frame_text{text_, bulk_};
}

base::result<bool> conversation::say_answers() {
  while (!answers_.empty() && !is_full()) {
    answer& first = answers_.front();
    if (first.kind != record_kind::data) {
      append(text_, {.kind = first.kind, .value = first.value});
      answers_.pop_front();
      continue;
    }
    const uint64_t bytes = std::min<uint64_t>(first.bytes, largest_chunk_bytes);
    const uint64_t address = first.address;
    first.address += bytes;
    first.bytes -= bytes;
    const bool is_last = first.bytes == 0;
    if (is_last) answers_.pop_front();
    MORI_TRY(const bool full, say_data({.kind = record_kind::data,
                                        .is_last = is_last ? uint8_t{1} : uint8_t{0},
                                        .bytes = static_cast<uint32_t>(bytes)},
                                       address));
    if (full) return true;
  }
  return is_full();
}

// Data behind its record: small pieces into the frame's text, a large one ends the frame.
base::result<bool> conversation::say_data(record header, uint64_t address) {
  MORI_TRY(const link::byte_span data, memory_.read(address, header.bytes));
  append(text_, header);
  if (header.bytes > small_data_bytes) {
    bulk_ = data;
    return true;
  }
  text_.insert(text_.end(), data.begin(), data.end());
  return is_full();
}

base::result<bool> conversation::say_requests() {
  while (has_request() && !is_full()) {
    command_state& next = commands_[said_];
    if (is_put(next.what)) {
      MORI_TRY(const bool full, say_put(next));
      if (full) return true;
      continue;
    }
    ++said_;
    if (next.what.kind == MORI_SHMEM_COMMAND_GET)
      append(text_,
             {.kind = record_kind::get, .offset = next.what.remote, .value = next.what.bytes});
    else
      append(text_, {.kind = record_kind::atomic,
                     .operation = static_cast<uint8_t>(next.what.operation),
                     .is_last = next.what.signal == 0 ? uint8_t{1} : uint8_t{0},
                     .word_bytes = static_cast<uint8_t>(next.what.bytes),
                     .offset = next.what.remote,
                     .value = next.what.value,
                     .compare = next.what.compare});
  }
  return is_full();
}

void conversation::say_signal(const mori_shmem_command_v1& what) {
  append(text_, {.kind = record_kind::signal,
                 .operation = static_cast<uint8_t>(what.operation),
                 .is_last = 1,
                 .word_bytes = 8,
                 .offset = what.signal,
                 .value = what.value});
}

base::result<bool> conversation::say_put(command_state& command) {
  const mori_shmem_command_v1& what = command.what;
  const uint64_t left = what.bytes - command.moved_bytes;
  const uint64_t bytes = std::min<uint64_t>(left, largest_chunk_bytes);
  const bool has_signal = what.operation != 0;
  const record header{.kind = record_kind::put,
                      .is_last = bytes == left && !has_signal ? uint8_t{1} : uint8_t{0},
                      .bytes = static_cast<uint32_t>(bytes),
                      .offset = what.remote + command.moved_bytes};
  const uint64_t from = what.local + command.moved_bytes;
  command.moved_bytes += bytes;
  const bool is_over = bytes == left;
  if (is_over && (!has_signal || bytes <= small_data_bytes)) ++said_;
  if (what.kind == MORI_SHMEM_COMMAND_INLINE) {
    if (bytes != 0) {
      const uint64_t words[2] = {what.local, what.compare};
      append(text_, header);
      const auto data = std::as_bytes(std::span(words)).first(bytes);
      text_.insert(text_.end(), data.begin(), data.end());
    }
  } else if (bytes != 0) {
    MORI_TRY(const bool full, say_data(header, from));
    // The signal of a bulk put opens the next frame, with 0 bytes left to say.
    if (bytes > small_data_bytes) return full;
  }
  if (is_over && has_signal) say_signal(what);
  return is_full();
}

// --- Listening

base::status conversation::on_frame(link::byte_span payload, uint32_t bulk_bytes) {
  while (!payload.empty()) {
    record said;
    if (payload.size() < sizeof said)
      return base::fail(MORI_E_PROTOCOL, "a record of {} bytes, it has {}", payload.size(),
                        sizeof said);
    std::memcpy(&said, payload.data(), sizeof said);
    payload = payload.subspan(sizeof said);
    if (payload.empty() && bulk_bytes != 0) return await_bulk(said, bulk_bytes);
    if (payload.size() < said.bytes)
      return base::fail(MORI_E_PROTOCOL, "a record announces {} bytes of data, {} are there",
                        said.bytes, payload.size());
    MORI_CHECK(on_record(said, payload.first(said.bytes)));
    payload = payload.subspan(said.bytes);
  }
  if (bulk_bytes != 0)
    return base::fail(MORI_E_PROTOCOL, "{} bytes of bulk behind no record", bulk_bytes);
  return {};
}

// --- Bulk

base::status conversation::await_bulk(const record& said, uint32_t bytes) {
  if (said.bytes != bytes)
    return base::fail(MORI_E_PROTOCOL, "a record announces {} bytes of data, {} are there",
                      said.bytes, bytes);
  if (said.kind == record_kind::put) {
    MORI_CHECK(check_target(said, bytes));
    bulk_address_ = heap_.base + said.offset;
  } else if (said.kind == record_kind::data) {
    MORI_CHECK(check_data(said, bytes));
    bulk_address_ = commands_.front().what.local + commands_.front().moved_bytes;
  } else {
    return base::fail(MORI_E_PROTOCOL, "{} bytes of bulk behind a record of kind {}", bytes,
                      static_cast<int>(said.kind));
  }
  awaiting_ = said;
  return {};
}

std::byte* conversation::bulk_place() {
  std::byte* place = receives_in_place_ ? memory_.place_of(bulk_address_) : nullptr;
  if (place != nullptr) return place;
  if (bulk_buffer_.size() < awaiting_.bytes) bulk_buffer_.resize(largest_chunk_bytes);
  return bulk_buffer_.data();
}

base::status conversation::on_bulk() {
  return on_record(awaiting_, {bulk_place(), awaiting_.bytes});
}

// --- Records

base::status conversation::on_record(const record& said, link::byte_span data) {
  switch (said.kind) {
    case record_kind::put:
    case record_kind::signal:
    case record_kind::atomic:
    case record_kind::get: return on_request(said, data);
    case record_kind::done:
    case record_kind::before:
    case record_kind::data: return on_answer(said, data);
    case record_kind::goodbye: peer_has_left_ = true; return {};
    default: return base::fail(MORI_E_PROTOCOL, "a record of kind {}", static_cast<int>(said.kind));
  }
}

base::status conversation::check_target(const record& said, uint64_t bytes) const {
  if (!fits(said.offset, bytes, heap_.bytes))
    return base::fail(MORI_E_PROTOCOL,
                      "a request for {} bytes at offset {:#x} of a heap of {:#x} bytes", bytes,
                      said.offset, heap_.bytes);
  if (answers_.size() >= window)
    return base::fail(MORI_E_PROTOCOL, "more than {} requests at once", window);
  return {};
}

void conversation::applied() {
  if (!answers_.empty() && answers_.back().kind == record_kind::done)
    ++answers_.back().value;
  else
    answers_.push_back({.kind = record_kind::done, .value = 1});
}

base::status conversation::on_request(const record& said, link::byte_span data) {
  const uint64_t address = heap_.base + said.offset;
  if (said.kind == record_kind::put) {
    MORI_CHECK(check_target(said, data.size()));
    MORI_CHECK(memory_.write(address, data));
    if (said.is_last != 0) applied();
    return {};
  }
  if (!data.empty())
    return base::fail(MORI_E_PROTOCOL, "{} bytes of data behind a record without", data.size());
  if (said.kind == record_kind::get) {
    MORI_CHECK(check_target(said, said.value));
    answers_.push_back({.kind = record_kind::data, .address = address, .bytes = said.value});
    return {};
  }
  const bool signals = said.kind == record_kind::signal;
  const uint32_t word_bytes = signals ? 8 : said.word_bytes;
  MORI_CHECK(check_target(said, word_bytes));
  if ((word_bytes != 4 && word_bytes != 8) || said.offset % word_bytes != 0 ||
      !(signals ? is_signal(said.operation) : is_atomic(said.operation)))
    return base::fail(MORI_E_PROTOCOL, "operation {} on {} bytes at offset {:#x}", said.operation,
                      word_bytes, said.offset);
  uint64_t* before = nullptr;
  if (said.is_last == 0) {
    answers_.push_back({.kind = record_kind::before});
    before = &answers_.back().value;
  }
  MORI_CHECK(
      memory_.change({address, said.value, said.compare, said.operation, word_bytes, before}));
  if (said.is_last != 0) applied();
  return {};
}

// An answer is one to the oldest command, which has been said.
base::status conversation::expect(record_kind answer) const {
  if (commands_.empty() || said_ == 0)
    return base::fail(MORI_E_PROTOCOL, "an answer that nobody waits for");
  if (awaited_answer(commands_.front().what) != answer)
    return base::fail(MORI_E_PROTOCOL, "an answer of kind {} to a command of kind {}",
                      static_cast<int>(answer), commands_.front().what.kind);
  return {};
}

void conversation::finish_oldest() {
  const origin from = commands_.front().from;
  commands_.pop_front();
  --said_;
  done_.on_complete(from);
}

base::status conversation::on_answer(const record& said, link::byte_span data) {
  if (said.kind == record_kind::data) return on_data(said, data);
  if (!data.empty())
    return base::fail(MORI_E_PROTOCOL, "{} bytes of data behind a record without", data.size());
  if (said.kind == record_kind::before) {
    MORI_CHECK(expect(record_kind::before));
    done_.on_answer(commands_.front().from, said.value);
    finish_oldest();
    return {};
  }
  for (uint64_t i = 0; i < said.value; ++i) {
    MORI_CHECK(expect(record_kind::done));
    finish_oldest();
  }
  return {};
}

base::status conversation::check_data(const record& said, uint64_t bytes) const {
  MORI_CHECK(expect(record_kind::data));
  const command_state& oldest = commands_.front();
  const uint64_t left = oldest.what.bytes - oldest.moved_bytes;
  if (bytes > left || (said.is_last != 0) != (bytes == left))
    return base::fail(MORI_E_PROTOCOL, "{} bytes of data for a get that wants {} more", bytes,
                      left);
  return {};
}

base::status conversation::on_data(const record& said, link::byte_span data) {
  MORI_CHECK(check_data(said, data.size()));
  command_state& oldest = commands_.front();
  MORI_CHECK(memory_.write(oldest.what.local + oldest.moved_bytes, data));
  oldest.moved_bytes += data.size();
  if (said.is_last != 0) finish_oldest();
  return {};
}

}  // namespace mori::shmem_core
