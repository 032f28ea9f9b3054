// queue_pair.cpp - see queue_pair.hpp. The device's states: reset -> init -> ready
// to receive -> ready to send, from everywhere to error, from there to reset.
#include <mori/link/verbs/queue_pair.hpp>

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "verbs/library.hpp"
#include "verbs/work_number.hpp"
#include "wire/keyed_hash.hpp"

namespace mori::link::verbs {
namespace {

constexpr uint32_t most_chained = 64;
constexpr uint8_t most_reads = 16;      // in flight per queue pair
constexpr uint8_t not_ready_wait = 12;  // 0.64 ms until a peer without a receive is asked again
constexpr uint8_t hop_limit = 64;

uint32_t random_packet_number() {
  std::array<uint8_t, 4> bytes{};
  random_bytes(bytes);
  return (uint32_t{bytes[0]} << 16 | uint32_t{bytes[1]} << 8 | bytes[2]) & 0xffffff;
}

int mtu_code(uint16_t bytes) {
  return std::clamp(static_cast<int>(std::bit_width(bytes)) - 8, 1, 5);
}

uint8_t reads_served(const device& of) {
  return static_cast<uint8_t>(std::min<uint32_t>(of.limits().max_reads_served, most_reads));
}

int opcode_of(operation what) {
  switch (what) {
    case operation::write: return abi::wr_write;
    case operation::write_immediate: return abi::wr_write_imm;
    case operation::read: return abi::wr_read;
    case operation::fetch_add: return abi::wr_fetch_add;
    case operation::compare_swap: return abi::wr_compare_swap;
  }
  return abi::wr_write;
}

bool is_atomic(operation what) {
  return what == operation::fetch_add || what == operation::compare_swap;
}

uint64_t bytes_of(const work& what) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < what.segment_count; ++i) bytes += what.local[i].bytes;
  return bytes;
}

// The request was wrong, not the connection.
bool is_refusal(int status) {
  switch (status) {
    case abi::wc_loc_len_err:
    case abi::wc_loc_qp_op_err:
    case abi::wc_loc_prot_err:
    case abi::wc_loc_access_err:
    case abi::wc_rem_inv_req_err:
    case abi::wc_rem_access_err:
    case abi::wc_rem_op_err: return true;
    default: return false;
  }
}

mori_status status_of(int status) {
  switch (status) {
    case abi::wc_rem_access_err:
    case abi::wc_loc_prot_err:
    case abi::wc_loc_access_err: return MORI_E_NOT_FOUND;  // no such registration
    case abi::wc_retry_exc_err:
    case abi::wc_rnr_retry_exc_err: return MORI_E_PEER_DEAD;
    default: return is_refusal(status) ? MORI_E_INVALID : MORI_E_UNAVAILABLE;
  }
}

const char* hint_of(int status) {
  switch (status) {
    case abi::wc_rem_access_err:
      return "; the peer's memory is not registered, or not for this, or the range is outside";
    case abi::wc_loc_prot_err: return "; the local memory is not registered for this";
    case abi::wc_retry_exc_err: return "; the peer does not answer";
    case abi::wc_rnr_retry_exc_err: return "; the peer has posted no receive";
    default: return "";
  }
}

void fill(abi::send_wr& to, abi::sge* segments, const work& what) {
  for (size_t i = 0; i < what.segment_count; ++i)
    segments[i] = {what.local[i].address, what.local[i].bytes, what.local[i].key};
  to.sg_list = segments;
  to.num_sge = what.segment_count;
  to.opcode = opcode_of(what.what);
  to.imm_data = htonl(what.immediate);
  if (is_atomic(what.what)) {
    to.wr.atomic.remote_addr = what.remote_address;
    to.wr.atomic.rkey = what.remote_key;
    to.wr.atomic.compare_add = what.what == operation::fetch_add ? what.operand : what.compare;
    to.wr.atomic.swap = what.operand;
  } else {
    to.wr.rdma.remote_addr = what.remote_address;
    to.wr.rdma.rkey = what.remote_key;
  }
  if (what.is_inline) to.send_flags |= abi::send_inline;
}

}  // namespace

// --- Life.

queue_pair::queue_pair(std::shared_ptr<completion_queue> queue, const options& with)
    : queue_(std::move(queue)), options_(with) {}

base::result<std::unique_ptr<queue_pair>> queue_pair::create(
    std::shared_ptr<completion_queue> queue, const options& with) {
  const uint32_t limit = queue->of()->limits().max_queue_count;
  if (with.send_count < 1 || with.send_count > limit || with.receive_count > limit)
    return base::fail(MORI_E_INVALID, "queues of {} sends and {} receives, outside 1 .. {} of {}",
                      with.send_count, with.receive_count, limit, queue->of()->port().device);
  if (with.chain_count < 1 || with.chain_count > most_chained)
    return base::fail(MORI_E_INVALID, "chains of {} work requests, outside 1 .. {}",
                      with.chain_count, most_chained);
  std::unique_ptr<queue_pair> made(new queue_pair(std::move(queue), with));
  MORI_TRY(made->slot_, made->queue_->enter(*made, made->total_room()));
  if (auto created = made->create(); !created) {
    made->queue_->leave(made->slot_, made->total_room());
    return created.error();
  }
  return made;
}

base::status queue_pair::create() {
  device& of = *queue_->of();
  abi::qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = queue_->made();
  attributes.qp_type = abi::qp_type_rc;
  attributes.cap = {options_.send_count, std::max(options_.receive_count, 1U),
                    std::min<uint32_t>(max_work_segments, of.limits().max_segments), 1,
                    options_.inline_bytes};
  made_ = of.library().ibv_create_qp(of.domain(), &attributes);
  if (made_ == nullptr)
    return base::fail_os(errno, "{}: no queue pair of {} sends, {} receives, {} inline bytes",
                         of.port().device, options_.send_count, options_.receive_count,
                         options_.inline_bytes);
  inline_bytes_ = std::min(attributes.cap.max_inline_data, options_.inline_bytes);
  slots_.resize(options_.send_count);
  inline_store_.resize(uint64_t{options_.send_count} * inline_bytes_);
  if (auto ready = make_ready(); !ready) {
    of.library().ibv_destroy_qp(made_);
    made_ = nullptr;
    return ready.error();
  }
  return {};
}

queue_pair::~queue_pair() {
  if (made_ == nullptr) return;
  queue_->of()->library().ibv_destroy_qp(made_);
  queue_->leave(slot_, total_room());
}

// From reset to init.
base::status queue_pair::make_ready() {
  device& of = *queue_->of();
  address_ = {made_->qp_num, random_packet_number()};
  abi::qp_attr to{};
  to.qp_state = abi::qps_init;
  to.port_num = of.port().port;
  to.qp_access_flags = abi::access_remote_read | abi::access_remote_write;
  if (of.limits().has_atomics) to.qp_access_flags |= abi::access_remote_atomic;
  const int problem = of.library().ibv_modify_qp(
      made_, &to,
      abi::qp_mask_state | abi::qp_mask_pkey_index | abi::qp_mask_port | abi::qp_mask_access_flags);
  if (problem != 0) return base::fail_os(problem, "a queue pair cannot be initialised");
  return {};
}

base::status queue_pair::connect(const port_address& to_port, const queue_address& to) {
  device& of = *queue_->of();
  abi::qp_attr with{};
  with.qp_state = abi::qps_rtr;
  with.path_mtu = mtu_code(std::min(of.mtu(), to_port.mtu));
  with.dest_qp_num = to.number;
  with.rq_psn = to.first_packet;
  with.max_dest_rd_atomic = reads_served(of);
  with.min_rnr_timer = not_ready_wait;
  with.ah_attr.port_num = of.port().port;
  with.ah_attr.sl = of.with().service_level;
  with.ah_attr.dlid = to_port.lid;
  with.ah_attr.is_global = of.is_ethernet();
  if (of.is_ethernet()) {
    std::ranges::copy(to_port.gid, with.ah_attr.grh.dgid.raw);
    with.ah_attr.grh.sgid_index = static_cast<uint8_t>(of.port().gid.index);
    with.ah_attr.grh.hop_limit = hop_limit;
    with.ah_attr.grh.traffic_class = of.with().traffic_class;
    // Spreads queue pairs over the equal paths of a network.
    with.ah_attr.grh.flow_label = (address_.number ^ to.number) & 0xfffff;
  }
  int problem = of.library().ibv_modify_qp(
      made_, &with,
      abi::qp_mask_state | abi::qp_mask_av | abi::qp_mask_path_mtu | abi::qp_mask_dest_qpn |
          abi::qp_mask_rq_psn | abi::qp_mask_max_dest_rd_atomic | abi::qp_mask_min_rnr_timer);
  if (problem != 0)
    return base::fail_os(problem, "{}, {}: no way to the peer's queue pair", of.port().device,
                         of.port().gid.text());
  with.qp_state = abi::qps_rts;
  with.sq_psn = address_.first_packet;
  with.timeout = of.with().timeout;
  with.retry_cnt = of.with().retry_count;
  with.rnr_retry = of.with().not_ready_count;
  with.max_rd_atomic = static_cast<uint8_t>(std::max<uint32_t>(
      1, std::min<uint32_t>({of.limits().max_reads_in_flight, to_port.reads_served, most_reads})));
  problem = of.library().ibv_modify_qp(made_, &with,
                                       abi::qp_mask_state | abi::qp_mask_sq_psn |
                                           abi::qp_mask_timeout | abi::qp_mask_retry_cnt |
                                           abi::qp_mask_rnr_retry | abi::qp_mask_max_rd_atomic);
  if (problem != 0) return base::fail_os(problem, "a queue pair does not get ready to send");
  return {};
}

// --- Posting.

base::status queue_pair::check(const work& what) const {
  const uint64_t bytes = bytes_of(what);
  const uint32_t limit = queue_->of()->limits().max_message_bytes;
  if (what.segment_count > max_work_segments)
    return base::fail(MORI_E_INVALID, "{} segments, {} are allowed", what.segment_count,
                      max_work_segments);
  if (bytes > limit)
    return base::fail(MORI_E_INVALID, "{} bytes in one work request, {} takes {}", bytes,
                      queue_->of()->port().device, limit);
  const bool is_write = what.what == operation::write || what.what == operation::write_immediate;
  if (what.is_inline && (!is_write || what.segment_count > 1 || bytes > inline_bytes_))
    return base::fail(MORI_E_INVALID, "{} inline bytes in {} segments; {} in one of a write can be",
                      bytes, what.segment_count, inline_bytes_);
  if (!is_atomic(what.what)) return {};
  if (!queue_->of()->limits().has_atomics)
    return base::fail(MORI_E_UNSUPPORTED, "{} has no atomics", queue_->of()->port().device);
  if (what.segment_count != 1 || bytes != 8 || what.remote_address % 8 != 0)
    return base::fail(MORI_E_INVALID,
                      "an atomic of {} bytes in {} segments at {:#x}; it has 8 in one, aligned",
                      bytes, what.segment_count, what.remote_address);
  return {};
}

base::result<size_t> queue_pair::post(std::span<const work> what) {
  if (is_broken()) return broken_.value();
  size_t done = 0;
  while (done < what.size() && room() > 0) {
    const size_t most =
        std::min({what.size() - done, size_t{room()}, size_t{options_.chain_count}});
    size_t count = 0;
    while (count < most) {
      if (auto checked = check(what[done + count]); !checked) {
        if (done + count == 0) return checked.error();
        break;
      }
      ++count;
    }
    if (count == 0) break;
    MORI_TRY(const size_t taken, post_chain(what.subspan(done, count)));
    done += taken;
    if (taken < count || count < most) break;
  }
  return done;
}

void queue_pair::keep_inline(work& what, uint64_t number) {
  std::byte* const to = inline_store_.data() + number % options_.send_count * inline_bytes_;
  std::memcpy(to, reinterpret_cast<const void*>(what.local[0].address), what.local[0].bytes);
  what.local[0].address = reinterpret_cast<uintptr_t>(to);
}

base::result<size_t> queue_pair::post_chain(std::span<const work> what) {
  abi::send_wr chain[most_chained] = {};
  abi::sge segments[most_chained][max_work_segments];
  const uint64_t signal_after = std::max<uint64_t>(1, options_.send_count / 2);
  uint64_t signalled = last_signalled_;
  for (size_t i = 0; i < what.size(); ++i) {
    const uint64_t number = posted_ + i;
    fill(chain[i], segments[i], what[i]);
    chain[i].wr_id = work_number{slot_, false, number}.pack();
    chain[i].next = i + 1 < what.size() ? &chain[i + 1] : nullptr;
    slot(number) = what[i];
    if (what[i].is_inline && what[i].segment_count == 1) keep_inline(slot(number), number);
    // Without one in each half of the queue nothing would ever free it.
    if (!what[i].is_reported && number + 1 - signalled < signal_after) continue;
    chain[i].send_flags |= abi::send_signaled;
    signalled = number + 1;
  }
  abi::send_wr* refused = nullptr;
  const int problem = made_->context->ops.post_send(made_, chain, &refused);
  const size_t taken = problem == 0 ? what.size() : static_cast<size_t>(refused - chain);
  for (size_t i = 0; i < taken; ++i) {
    ++posted_;
    if ((chain[i].send_flags & abi::send_signaled) == 0) continue;
    last_signalled_ = posted_;
    ++counted_.signalled;
  }
  counted_.posted += taken;
  ++counted_.doorbells;
  if (problem == 0) return taken;
  // The device's own queue may be full a little earlier than ours.
  if (taken > 0 || problem == ENOMEM) return taken;
  return base::fail_os(problem, "{} refused a work request", queue_->of()->port().device);
}

base::status queue_pair::post_receives(uint32_t count) {
  if (is_broken()) return broken_.value();
  if (count > options_.receive_count - receives_)
    return base::fail(MORI_E_AGAIN, "{} receives are posted, {} more exceed {}", receives_, count,
                      options_.receive_count);
  for (uint32_t i = 0; i < count; ++i) {
    abi::recv_wr one{};
    abi::recv_wr* refused = nullptr;
    one.wr_id = work_number{slot_, true, receive_epoch_}.pack();
    if (const int problem = made_->context->ops.post_recv(made_, &one, &refused); problem != 0)
      return base::fail_os(problem, "{} refused a receive", queue_->of()->port().device);
    ++receives_;
  }
  return {};
}

// --- Completions and errors.

bool queue_pair::on_completion(const abi::wc& what, completion& to) {
  const work_number of = work_number::unpack(what.wr_id);
  if (of.is_receive) {
    if (of.number != receive_epoch_) return false;
    --receives_;
    if (what.status != abi::wc_success) {
      on_receive(what);
      return false;
    }
    to = {};
    to.is_received = true;
    to.immediate = ntohl(what.imm_data);
    to.bytes = what.byte_len;
    return true;
  }
  if (of.number < epoch_begin_ || of.number >= posted_) return false;
  if (what.status != abi::wc_success) {
    on_error(what, of.number);
    return false;
  }
  retired_ = std::max(retired_, of.number + 1);
  drained_ = std::max(drained_, retired_);
  const work& done = slot(of.number);
  if (!done.is_reported) return false;
  to = {};
  to.id = done.id;
  to.bytes = static_cast<uint32_t>(bytes_of(done));
  return true;
}

void queue_pair::on_receive(const abi::wc& what) {
  stop(base::fail(MORI_E_UNAVAILABLE, "a receive failed: {}",
                  queue_->of()->library().ibv_wc_status_str(what.status)));
}

void queue_pair::on_error(const abi::wc& what, uint64_t number) {
  drained_ = std::max(drained_, number + 1);
  if (has_failed_) return;
  has_failed_ = true;
  // Those before it have completed: work completes in order.
  retired_ = std::max(retired_, number);
  is_refused_ = is_refusal(what.status);
  // Stopped for another reason, this work merely comes back.
  if (is_broken() && what.status == abi::wc_wr_flush_err) return;
  broken_.reset();
  stop(base::fail(status_of(what.status), "{} (status {}, vendor's {:#x}){}",
                  queue_->of()->library().ibv_wc_status_str(what.status), what.status,
                  what.vendor_err, hint_of(what.status)));
}

void queue_pair::stop(const base::failure& why) {
  if (!is_broken()) broken_ = why;
  abi::qp_attr to{};
  to.qp_state = abi::qps_err;
  (void)queue_->of()->library().ibv_modify_qp(made_, &to, abi::qp_mask_state);
}

queue_pair::remains queue_pair::unfinished() const {
  remains left;
  left.works.reserve(posted_ - retired_);
  left.bytes.reserve((posted_ - retired_) * inline_bytes_);  // so that it never moves
  for (uint64_t number = retired_; number < posted_; ++number) {
    work one = slot(number);
    if (one.is_inline && one.segment_count == 1) {
      const auto* const from = reinterpret_cast<const std::byte*>(one.local[0].address);
      one.local[0].address = reinterpret_cast<uintptr_t>(left.bytes.data() + left.bytes.size());
      left.bytes.insert(left.bytes.end(), from, from + one.local[0].bytes);
    }
    left.works.push_back(one);
  }
  return left;
}

base::status queue_pair::reset() {
  abi::qp_attr to{};
  to.qp_state = abi::qps_reset;
  if (const int problem = queue_->of()->library().ibv_modify_qp(made_, &to, abi::qp_mask_state);
      problem != 0)
    return base::fail_os(problem, "a queue pair cannot be reset");
  // Completions of before must leave room for those to come, also where the driver keeps them.
  queue_->take_all();
  retired_ = drained_ = epoch_begin_ = last_signalled_ = posted_;
  receives_ = 0;
  ++receive_epoch_;
  broken_.reset();
  is_refused_ = has_failed_ = false;
  return make_ready();
}

}  // namespace mori::link::verbs
