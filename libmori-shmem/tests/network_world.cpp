// network_world.cpp - see network_world.hpp.
#include "network_world.hpp"

#include <algorithm>
#include <cstring>

namespace mori::shmem_test {
namespace {

uint64_t load(uint64_t address) {
  return device::load<device::scope::system, device::order::acquire>(
      device::pointer<const uint64_t>(address));
}

// The first words of a column: the epoch that data carries, then the signal that follows it.
constexpr uint64_t data_word = 0;
constexpr uint64_t signal_word = 1;
constexpr uint64_t free_words = 2;

}  // namespace

network_world::network_world(const world_options& with) : options_(with), random_(with.seed) {
  const auto count = static_cast<size_t>(with.pe_count);
  for (int at = 0; at < with.pe_count; ++at)
    for (int i = 0; i < with.producer_count; ++i) {
      producer p;
      p.pe = at;
      p.number = static_cast<int>(producers_.size());
      p.left = with.operations;
      p.columns.assign(count, std::vector<uint64_t>(column_words, 0));
      p.before.resize(count);
      p.signals.assign(count, 0);
      producers_.push_back(std::move(p));
    }
  const core::ring_shape shape{static_cast<uint64_t>(with.ring_count), count, with.capacity};
  for (int at = 0; at < with.pe_count; ++at) {
    auto made = std::make_unique<pe>();
    made->heap.assign(heap_words(), 0);
    // Nobody sleeps here, so nobody is woken by this descriptor.
    made->rings = std::make_unique<core::host_rings>(shape, -1);
    for (const auto& ring : made->rings->all()) made->readers.emplace_back(ring, with.pe_count);
    made->memory = std::make_unique<core::host_memory>(made->sync);
    pes_.push_back(std::move(made));
  }
  for (int from = 0; from < with.pe_count; ++from)
    for (int to = 0; to < with.pe_count; ++to) {
      pe& own = *pes_[static_cast<size_t>(from)];
      own.sides.push_back(from == to ? nullptr : std::make_unique<side>(*this, from, to));
      if (from != to)
        own.sides.back()->talk = std::make_unique<core::conversation>(
            *own.memory,
            core::conversation::heap_range{reinterpret_cast<uint64_t>(own.heap.data()),
                                           own.heap.size() * 8},
            *own.sides.back(), with.seed % 2 == 0);
    }
}

// --- Producers

void network_world::begin_put(producer& p, uint64_t to) {
  const uint64_t begin = column_words * static_cast<uint64_t>(p.number);
  const bool is_large = pick(40) == 0;
  uint64_t word = free_words + pick(column_words - free_words);
  uint64_t words = pick(std::min<uint64_t>(column_words - word, 12) + 1);
  const bool has_signal = pick(2) == 0;
  if (has_signal) {  // the epoch goes with the data
    word = data_word;
    words = 1;
  }
  if (words == 0 && !has_signal) words = 1;
  p.what.remote = (begin + word) * 8;
  if (is_large && !has_signal) {  // several frames, to a place where nobody looks
    words = large_words - pick(1000);
    p.what.remote = (counter_word(shared_words)) * 8;
  }
  std::vector<uint64_t> data(words);
  for (uint64_t& value : data) value = random_();
  if (has_signal) data[0] = ++p.epoch;
  if (!is_large || has_signal)
    std::copy(data.begin(), data.end(), p.columns[to].begin() + static_cast<ptrdiff_t>(word));
  p.what.kind = MORI_SHMEM_COMMAND_PUT;
  p.what.bytes = words * 8;
  if (words <= 2 && pick(2) == 0) {
    p.what.kind = MORI_SHMEM_COMMAND_INLINE;
    p.what.local = words > 0 ? data[0] : 0;
    p.what.compare = words > 1 ? data[1] : 0;
  } else {
    p.sources.push_back(std::move(data));
    p.what.local = reinterpret_cast<uint64_t>(p.sources.back().data());
  }
  if (!has_signal) return;
  p.what.operation = MORI_SHMEM_SIGNAL_SET;
  p.what.signal = (begin + signal_word) * 8;
  p.what.value = p.epoch;
  p.columns[to][signal_word] = p.epoch;
}

void network_world::begin(producer& p) {
  --p.left;
  const auto others = static_cast<uint64_t>(options_.pe_count - 1);
  const auto to =
      (static_cast<uint64_t>(p.pe) + 1 + pick(others)) % static_cast<uint64_t>(options_.pe_count);
  p.what = {};
  p.what.pe = static_cast<int32_t>(to);
  // Data and signal of one producer stay on one queue, which keeps their order.
  p.ring = &pes_[static_cast<size_t>(p.pe)]
                ->rings->all()[static_cast<size_t>(p.number % options_.ring_count)];
  const uint64_t kind = p.left == 0 ? 9 : pick(10);
  if (kind >= 8) {
    p.quiet_pe = kind == 9 ? -1 : static_cast<int>(to);
    p.awaited = kind == 9 ? load(p.ring->tail) : load(p.ring->posted + 8 * to);
    p.at = producer::step::quiet;
    return;
  }
  if (kind < 5) {
    begin_put(p, to);
  } else if (kind < 7) {
    p.what.kind = MORI_SHMEM_COMMAND_ATOMIC;
    p.what.operation = MORI_SHMEM_AMO_FETCH_ADD;
    p.what.remote = counter_word(0) * 8;
    p.what.bytes = 8;
    p.what.signal = 1;
    p.what.value = 1;
  } else {
    p.what.kind = MORI_SHMEM_COMMAND_INLINE;
    p.what.operation = MORI_SHMEM_SIGNAL_ADD;
    p.what.signal = p.what.remote = counter_word(1) * 8;
    p.what.value = random_();
    p.signals[to] += p.what.value;
  }
  p.index = api::claim_index(*p.ring, p.what.pe);
  p.at = producer::step::room;
}

// Room for the command, a free cell for its answer, the command.
bool network_world::post(producer& p) {
  const bool wants_answer = p.what.kind == MORI_SHMEM_COMMAND_ATOMIC;
  if (p.at == producer::step::room) {
    if (!api::has_room(p.ring->capacity_count, p.index, load(p.ring->taken))) return false;
    if (wants_answer) {
      p.at = producer::step::cell;
      return true;
    }
  } else {
    uint64_t* busy = api::busy_word(*p.ring, p.index);
    if (*busy != 0) return false;
    *busy = p.index + 1;
  }
  api::write_command(*p.ring, p.index, p.what);
  p.at = wants_answer ? producer::step::answer : producer::step::idle;
  return true;
}

bool network_world::await(producer& p) {
  if (p.at == producer::step::answer) {
    const auto* cell = api::answer_cell(*p.ring, p.index);
    if (cell->turn != p.index + 1) return false;
    const bool fresh = p.before[static_cast<size_t>(p.what.pe)].insert(cell->value).second;
    CHECK_MESSAGE(fresh, repeat());
    *api::busy_word(*p.ring, p.index) = 0;
    p.at = producer::step::idle;
    return true;
  }
  const uint64_t seen = p.quiet_pe < 0
                            ? load(p.ring->done)
                            : load(p.ring->completed + 8 * static_cast<uint64_t>(p.quiet_pe));
  if (seen < p.awaited) return false;
  end_quiet(p);
  p.at = producer::step::idle;
  return true;
}

// What it put is there.
void network_world::end_quiet(producer& p) {
  for (int to = 0; to < options_.pe_count; ++to) {
    if (to == p.pe || (p.quiet_pe >= 0 && to != p.quiet_pe)) continue;
    const uint64_t* there =
        pes_[static_cast<size_t>(to)]->heap.data() + column_words * static_cast<uint64_t>(p.number);
    const bool same =
        std::equal(there, there + column_words, p.columns[static_cast<size_t>(to)].begin());
    CHECK_MESSAGE(same, repeat(), " producer ", p.number, " to PE ", to);
  }
  if (p.quiet_pe < 0) p.sources.clear();
}

bool network_world::step(producer& p) {
  switch (p.at) {
    case producer::step::idle:
      if (is_over(p)) return false;
      begin(p);
      return true;
    case producer::step::room:
    case producer::step::cell: return post(p);
    default: return await(p);
  }
}

// --- Proxies and frames

bool network_world::move_proxy(pe& of) {
  bool moved = false;
  for (uint32_t ring = 0; ring < of.readers.size(); ++ring) {
    const auto* next = of.readers[ring].peek();
    if (next == nullptr) continue;
    core::conversation& talk = *of.sides[static_cast<size_t>(next->pe)]->talk;
    if (!talk.has_room()) continue;
    const auto what = *next;
    const auto added = talk.add(what, {ring, of.readers[ring].take()});
    CHECK_MESSAGE(static_cast<bool>(added), repeat());
    moved = true;
  }
  // Now and then late, as a busy proxy is.
  if (pick(3) != 0)
    for (auto& reader : of.readers) reader.publish();
  return moved;
}

bool network_world::speak(side& of) {
  if (!of.talk->wants_to_speak()) return false;
  const auto frame = of.talk->next_frame();
  REQUIRE(static_cast<bool>(frame));
  if (frame->text.empty()) return false;
  CHECK(frame->text.size() <= core::largest_payload_bytes);
  CHECK(frame->bulk.size() <= core::largest_chunk_bytes);
  if (!is_cut(of.from, of.to))
    of.wire.push_back(
        {{frame->text.begin(), frame->text.end()}, {frame->bulk.begin(), frame->bulk.end()}});
  return true;
}

// Who sees a signal sees its data.
void network_world::check_order(int at) {
  const auto& heap = pes_[static_cast<size_t>(at)]->heap;
  for (const producer& p : producers_) {
    const uint64_t* column = heap.data() + column_words * static_cast<uint64_t>(p.number);
    CHECK_MESSAGE(column[data_word] >= column[signal_word], repeat());
  }
}

bool network_world::listen(side& of) {
  if (of.wire.empty() || is_cut(of.from, of.to)) return false;
  const auto frame = std::move(of.wire.front());
  of.wire.pop_front();
  pe& target = *pes_[static_cast<size_t>(of.to)];
  core::conversation& talk = *target.sides[static_cast<size_t>(of.from)]->talk;
  const auto bulk_bytes = static_cast<uint32_t>(frame.bulk.size());
  CHECK_MESSAGE(static_cast<bool>(talk.on_frame(frame.text, bulk_bytes)), repeat());
  if (bulk_bytes != 0) {
    std::memcpy(talk.bulk_place(), frame.bulk.data(), bulk_bytes);
    CHECK_MESSAGE(static_cast<bool>(talk.on_bulk()), repeat());
  }
  CHECK(static_cast<bool>(target.memory->flush()));
  check_order(of.to);
  return true;
}

bool network_world::run() {
  uint64_t still = 0;
  // Enough idle turns that everybody has been asked many times.
  while (still < 4000) {
    if (std::ranges::all_of(producers_, [&](const producer& p) { return is_over(p); })) return true;
    ++turns_;
    bool moved = false;
    const auto at = static_cast<size_t>(pick(pes_.size()));
    const auto other = static_cast<size_t>(pick(pes_.size()));
    switch (pick(4)) {
      case 0: moved = step(producers_[static_cast<size_t>(pick(producers_.size()))]); break;
      case 1: moved = move_proxy(*pes_[at]); break;
      case 2: moved = at != other && speak(*pes_[at]->sides[other]); break;
      default: moved = at != other && listen(*pes_[at]->sides[other]);
    }
    still = moved ? 0 : still + 1;
  }
  return false;
}

void network_world::check_end() {
  for (int to = 0; to < options_.pe_count; ++to) {
    uint64_t count = 0, sum = 0;
    std::set<uint64_t> all;
    for (const producer& p : producers_) {
      const auto& mine = p.before[static_cast<size_t>(to)];
      count += mine.size();
      all.insert(mine.begin(), mine.end());
      sum += p.signals[static_cast<size_t>(to)];
    }
    // Every fetch-add saw another value, and together they are 0 .. count - 1.
    CHECK_MESSAGE(all.size() == count, repeat());
    CHECK_MESSAGE((all.empty() || *all.rbegin() == count - 1), repeat());
    const auto& heap = pes_[static_cast<size_t>(to)]->heap;
    CHECK_MESSAGE(heap[counter_word(0)] == count, repeat());
    CHECK_MESSAGE(heap[counter_word(1)] == sum, repeat());
  }
  for (const auto& each : pes_)
    for (auto& reader : each->readers) {
      reader.publish();
      CHECK_MESSAGE(reader.all_done(), repeat());
    }
}

}  // namespace mori::shmem_test
