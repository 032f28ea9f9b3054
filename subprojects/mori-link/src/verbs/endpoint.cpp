// endpoint.cpp - see endpoint.hpp.
#include <mori/base/log.hpp>
#include <mori/link/verbs/endpoint.hpp>

#include <algorithm>

namespace mori::link::verbs {
namespace {

constexpr uint32_t description_magic = 0x4452524d;  // "MRRD"
constexpr uint16_t description_version = 1;
constexpr size_t max_reason_bytes = 160;

void write_port(byte_writer& out, const device& of) {
  out.raw(std::as_bytes(std::span(of.port().gid.bytes)));
  out.u16(of.lid());
  out.u16(of.mtu());
  out.u8(static_cast<uint8_t>(std::min<uint32_t>(of.limits().max_reads_served, UINT8_MAX)));
  out.u8(of.is_ethernet() ? 1 : 0);
}

port_address read_port(byte_reader& in) {
  port_address port;
  const byte_span gid = in.raw(port.gid.size());
  if (gid.size() == port.gid.size()) std::memcpy(port.gid.data(), gid.data(), gid.size());
  port.lid = in.u16();
  port.mtu = in.u16();
  port.reads_served = in.u8();
  port.is_ethernet = in.u8() != 0;
  return port;
}

}  // namespace

base::result<std::unique_ptr<endpoint>> endpoint::create(std::shared_ptr<completion_queue> queue,
                                                         const options& with) {
  if (with.queue_pair_count < 1 || with.queue_pair_count > max_queue_pairs)
    return base::fail(MORI_E_INVALID, "{} queue pairs, outside 1 .. {}", with.queue_pair_count,
                      max_queue_pairs);
  std::unique_ptr<endpoint> made(new endpoint(std::move(queue), with));
  for (uint16_t i = 0; i < with.queue_pair_count; ++i) {
    MORI_TRY(auto pair, queue_pair::create(made->queue_, with.each));
    made->pairs_.push_back(std::move(pair));
  }
  made->kept_.resize(with.queue_pair_count);
  return made;
}

// --- Descriptions.

byte_vector endpoint::describe() const {
  byte_writer out;
  out.u32(description_magic);
  out.u16(description_version);
  out.u32(generation_);
  write_port(out, *queue_->of());
  out.u16(count());
  for (const auto& each : pairs_) {
    out.u32(each->address().number);
    out.u32(each->address().first_packet);
  }
  out.text(std::string_view(why_.text).substr(0, max_reason_bytes));
  return out.take();
}

base::result<endpoint::description> endpoint::parse(byte_span bytes) {
  byte_reader in(bytes);
  if (in.u32() != description_magic || !in.good())
    return base::fail(MORI_E_PROTOCOL, "{} bytes that describe no endpoint", bytes.size());
  if (const uint16_t version = in.u16(); in.good() && version != description_version)
    return base::fail(MORI_E_VERSION, "an endpoint described in version {}, known is {}", version,
                      description_version);
  description made;
  made.generation = in.u32();
  made.port = read_port(in);
  const uint16_t count = in.u16();
  for (uint16_t i = 0; i < count && in.good() && i < max_queue_pairs; ++i) {
    const uint32_t number = in.u32();
    made.queues.push_back({number, in.u32() & 0xffffff});
  }
  made.reason = in.text(max_reason_bytes);
  if (!in.complete() || made.generation == 0)
    return base::fail(MORI_E_PROTOCOL, "an endpoint's description of {} bytes is damaged",
                      bytes.size());
  return made;
}

std::optional<byte_vector> endpoint::take_description() {
  if (state_ == state::failed || !std::exchange(tells_, false)) return std::nullopt;
  return describe();
}

base::status endpoint::on_description(byte_span bytes) {
  MORI_TRY(description theirs, parse(bytes));
  if (theirs.queues.size() != pairs_.size())
    return base::fail(MORI_E_PROTOCOL, "the peer has {} queue pairs, here are {}",
                      theirs.queues.size(), pairs_.size());
  const device& of = *queue_->of();
  if (theirs.port.is_ethernet != of.is_ethernet())
    return base::fail(MORI_E_PROTOCOL, "one side is on Ethernet, the other on InfiniBand");
  if (state_ == state::failed) return why_;
  if (theirs.generation < generation_) return {};
  if (theirs.generation == generation_)
    return state_ == state::waiting ? connect(theirs) : base::status();
  const std::string reason = theirs.reason;
  theirs_ = std::move(theirs);
  begin_draining(base::fail(MORI_E_UNAVAILABLE, "the peer began anew: {}", reason), base::now_ns());
  return {};
}

base::status endpoint::connect(const description& theirs) {
  for (size_t i = 0; i < pairs_.size(); ++i) {
    if (auto made = pairs_[i]->connect(theirs.port, theirs.queues[i]); !made) {
      fail_all(made.error());
      return made.error();
    }
  }
  state_ = state::ready;
  replay();
  return {};
}

// --- Work.

base::result<size_t> endpoint::post(uint16_t index, std::span<const work> what) {
  if (state_ == state::failed) return why_;
  if (state_ != state::ready || !kept_[index].empty()) return size_t{0};
  queue_pair& to = *pairs_[index];
  if (to.is_broken()) return size_t{0};  // step() will see to it
  return to.post(what);
}

// All of it was in flight before, so it fits.
void endpoint::replay() {
  for (size_t i = 0; i < pairs_.size(); ++i) {
    while (!kept_[i].empty()) {
      const std::vector<work>& works = kept_[i].front().works;
      const auto posted = pairs_[i]->post(works);
      const size_t taken = posted ? *posted : 0;
      for (size_t lost = taken; lost < works.size(); ++lost)
        note_failed(works[lost], MORI_E_UNAVAILABLE);
      kept_[i].pop_front();
    }
  }
}

void endpoint::note_failed(const work& what, mori_status status) {
  completion made;
  made.id = what.id;
  made.status = status;
  failed_.push_back(made);
}

std::optional<completion> endpoint::take_failed() {
  if (failed_.empty()) return std::nullopt;
  const completion first = failed_.front();
  failed_.pop_front();
  return first;
}

// --- Recovery.

void endpoint::step(uint64_t now_ns) {
  if (state_ == state::ready) {
    const auto broken =
        std::ranges::find_if(pairs_, [](const auto& each) { return each->is_broken(); });
    if (broken != pairs_.end()) begin_draining((*broken)->why(), now_ns);
  }
  if (state_ == state::draining && (is_drained() || now_ns >= drain_until_ns_)) begin_anew();
}

void endpoint::begin_draining(const base::failure& why, uint64_t now_ns) {
  if (state_ == state::draining || state_ == state::failed) return;
  why_ = why;
  base::log(MORI_LOG_INFO, "rdma: a connection over {} is made anew: {}",
            queue_->of()->port().device, why.text);
  for (const auto& each : pairs_)
    if (!each->is_broken()) each->stop(why);
  state_ = state::draining;
  drain_until_ns_ = base::deadline::saturating_add(now_ns, options_.drain_ns);
}

bool endpoint::is_drained() const {
  return std::ranges::all_of(pairs_, [](const auto& each) { return each->is_drained(); });
}

// Keeps what may be repeated; the rest has failed. The first of a refused pair is the culprit.
void endpoint::put_aside(queue_pair& of, std::deque<queue_pair::remains>& kept) {
  queue_pair::remains left = of.unfinished();
  std::vector<work> again;
  for (size_t i = 0; i < left.works.size(); ++i) {
    const work& each = left.works[i];
    if (i == 0 && of.is_refused())
      note_failed(each, of.why().status);
    else if (!each.may_repeat())
      note_failed(each, MORI_E_UNAVAILABLE);
    else
      again.push_back(each);
  }
  left.works = std::move(again);
  if (!left.works.empty()) kept.push_back(std::move(left));
}

void endpoint::begin_anew() {
  // Those that the peer begins are the peer's to count.
  const auto moved_on = [](const auto& each) { return each->has_progress() || each->is_refused(); };
  if (std::ranges::any_of(pairs_, moved_on)) recoveries_ = 0;
  if (!theirs_) ++recoveries_;
  ++recovery_count_;
  for (size_t i = 0; i < pairs_.size(); ++i) put_aside(*pairs_[i], kept_[i]);
  for (const auto& each : pairs_)
    if (auto reset = each->reset(); !reset) return fail_all(reset.error());
  if (recoveries_ > options_.max_recoveries)
    return fail_all(base::fail(why_.status, "given up after {} recoveries without progress: {}",
                               options_.max_recoveries, why_.text));
  if (auto device = queue_->of()->check(); !device) return fail_all(device.error());
  state_ = state::waiting;
  generation_ = std::max(generation_ + 1, theirs_ ? theirs_->generation : 0);
  tells_ = true;
  if (!theirs_ || theirs_->generation != generation_) return;
  const description theirs = std::move(*theirs_);
  theirs_.reset();
  (void)connect(theirs);
}

void endpoint::restart(const base::failure& why) { begin_draining(why, base::now_ns()); }

void endpoint::fail(const base::failure& why) {
  if (state_ == state::failed) return;
  for (size_t i = 0; i < pairs_.size(); ++i) {
    put_aside(*pairs_[i], kept_[i]);
    if (!pairs_[i]->is_broken()) pairs_[i]->stop(why);
    (void)pairs_[i]->reset();  // it is the end; destroying it is what remains
  }
  fail_all(why);
}

void endpoint::fail_all(const base::failure& why) {
  why_ = why;
  state_ = state::failed;
  base::log(MORI_LOG_WARN, "rdma: a connection over {} is given up: {}",
            queue_->of()->port().device, why.text);
  for (auto& each : kept_) {
    for (const queue_pair::remains& left : each)
      for (const work& lost : left.works) note_failed(lost, why.status);
    each.clear();
  }
}

}  // namespace mori::link::verbs
