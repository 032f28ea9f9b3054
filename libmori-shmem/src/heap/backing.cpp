// backing.cpp - see backing.hpp.
#include "heap/backing.hpp"

#include <algorithm>

namespace mori::shmem_core {

backing::backing(uint64_t first_byte, uint64_t end_byte, uint64_t step_bytes)
    : first_byte_(first_byte), end_byte_(end_byte), step_bytes_(step_bytes) {}

uint64_t backing::down(uint64_t offset) const {
  return std::max(first_byte_, offset & ~(step_bytes_ - 1));
}

uint64_t backing::up(uint64_t offset) const {
  const uint64_t rounded = (offset + step_bytes_ - 1) & ~(step_bytes_ - 1);
  return std::min(end_byte_, rounded);
}

std::vector<backing::range> backing::missing(range wanted) const {
  std::vector<range> all;
  uint64_t at = down(wanted.start);
  const uint64_t end = up(wanted.end);
  auto next = held_.upper_bound(at);
  if (next != held_.begin()) at = std::max(at, std::prev(next)->second);
  while (at < end) {
    const uint64_t stop = next == held_.end() ? end : std::min(end, next->first);
    if (at < stop) all.push_back({at, stop});
    if (next == held_.end()) break;
    at = std::max(at, next->second);
    ++next;
  }
  return all;
}

std::vector<backing::range> backing::surplus(range freed, range unused) const {
  // Whole steps of the unused block, among those that the freed one has a part of.
  const uint64_t first = unused.start == first_byte_ ? first_byte_ : up(unused.start);
  const uint64_t last = unused.end == end_byte_ ? end_byte_ : down(unused.end);
  const uint64_t start = std::max(first, down(freed.start));
  const uint64_t end = std::min(last, up(freed.end));
  std::vector<range> all;
  if (start >= end) return all;
  auto at = held_.upper_bound(start);
  if (at != held_.begin() && std::prev(at)->second > start) --at;
  for (; at != held_.end() && at->first < end; ++at)
    all.push_back({std::max(start, at->first), std::min(end, at->second)});
  return all;
}

void backing::add(range taken) {
  bytes_ += taken.end - taken.start;
  auto next = held_.lower_bound(taken.start);
  if (next != held_.end() && next->first == taken.end) {
    taken.end = next->second;
    next = held_.erase(next);
  }
  if (next != held_.begin() && std::prev(next)->second == taken.start) {
    std::prev(next)->second = taken.end;
    return;
  }
  held_.emplace(taken.start, taken.end);
}

void backing::remove(range given_back) {
  auto at = held_.upper_bound(given_back.start);
  if (at == held_.begin()) return;
  --at;
  const range whole{at->first, at->second};
  if (given_back.end > whole.end) return;
  bytes_ -= given_back.end - given_back.start;
  if (whole.start == given_back.start)
    held_.erase(at);
  else
    at->second = given_back.start;
  if (given_back.end < whole.end) held_.emplace(given_back.end, whole.end);
}

}  // namespace mori::shmem_core
