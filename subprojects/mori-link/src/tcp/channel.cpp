// channel.cpp - see channel.hpp.
#include <mori/link/tcp/channel.hpp>

#include "wire/keyed_hash.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace mori::link::tcp {
namespace {

constexpr size_t read_step_bytes = 16 * 1024;
constexpr size_t read_call_bytes = 1024 * 1024;  // then others get their turn
constexpr size_t max_pieces = 9;

using header_array = std::array<std::byte, channel::header_bytes>;
using mac_array = std::array<uint8_t, channel::mac_bytes>;

header_array make_header(uint16_t kind, size_t payload_bytes, size_t bulk_bytes,
                         uint64_t sequence) {
  byte_writer out;
  out.u32(static_cast<uint32_t>(payload_bytes));
  out.u32(static_cast<uint32_t>(bulk_bytes));
  out.u16(kind);
  out.u16(0);
  out.u64(sequence);
  header_array header{};
  std::ranges::copy(out.view(), header.begin());
  return header;
}

byte_span given_mac(const byte_vector& bytes, size_t at) {
  return byte_span(bytes).subspan(at, channel::mac_bytes);
}

bool is_same(const mac_array& mac, byte_span given) {
  return equal_in_constant_time(
      mac, std::span(reinterpret_cast<const uint8_t*>(given.data()), given.size()));
}

// Another key than that of the frames.
key_bytes bulk_key(const key_bytes& of) {
  key_bytes key{};
  keyed_hash(of, "bulk", {}, key);
  return key;
}

}  // namespace

channel::channel(base::unique_fd fd, const handshake_options& handshake,
                 const channel_limits& limits)
    : fd_(std::move(fd)), handshake_(handshake), limits_(limits) {
  queue_ = handshake_.take_output();
}

void channel::note_end(int os_errno) {
  ended_ = true;
  end_reason_ = os_errno == 0            ? "closed its connection"
                : os_errno == ECONNRESET ? "closed its connection (reset)"
                                         : base::fail_os(os_errno, "lost its connection").text;
}

// Bytes that may be read now; 0 when the longest legal frame is there already.
size_t channel::make_room() {
  const size_t most = header_bytes + limits_.max_payload_bytes + mac_bytes + read_step_bytes;
  if (unread() >= most) return 0;
  if (taken_ != 0) {
    std::copy(incoming_.begin() + static_cast<ptrdiff_t>(taken_),
              incoming_.begin() + static_cast<ptrdiff_t>(filled_), incoming_.begin());
    filled_ -= taken_;
    taken_ = 0;
  }
  // Grows with what has arrived, not with what a header announces.
  const size_t wanted = std::min(most, std::max(filled_ + read_step_bytes, 2 * filled_));
  if (incoming_.size() < wanted) incoming_.resize(wanted);
  return incoming_.size() - filled_;
}

// Bytes that came; 0 where none did.
size_t channel::receive(msghdr& message) {
  ssize_t count = 0;
  do count = ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC);
  while (count < 0 && errno == EINTR);
  if (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK) note_end(errno);
  if (count == 0) note_end(0);
  return count <= 0 ? 0 : static_cast<size_t>(count);
}

// Into bulk that has its place, and behind it into the buffer, where there are `room` bytes.
size_t channel::read_once(size_t room) {
  std::array<iovec, 2> into{};
  size_t count = 0;
  const size_t bulk = bulk_in_.to != nullptr ? bulk_in_.left : 0;
  if (bulk > 0) into[count++] = {bulk_in_.to + (bulk_in_.bytes - bulk), bulk};
  into[count++] = {incoming_.data() + filled_, room};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = into.data();
  message.msg_iovlen = count;
  if (wants_descriptor_) {  // else the kernel drops what a peer sends along
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  const size_t got = receive(message);
  const size_t placed = std::min(got, bulk);
  bulk_in_.left -= placed;
  filled_ += got - placed;
  if (!wants_descriptor_ || got == 0) return got;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part))
    if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(part), sizeof descriptor);
      received_ = base::unique_fd(descriptor);
    }
  return got;
}

base::status channel::feed_handshake() {
  auto used = handshake_.on_bytes(byte_span(incoming_).subspan(taken_, unread()));
  const byte_vector answer = handshake_.take_output();
  if (!answer.empty()) {
    const byte_span piece(answer);
    write_or_queue({&piece, 1});
  }
  if (!used) return std::move(used.error());
  taken_ += *used;
  return {};
}

base::status channel::on_readable() {
  size_t total = 0;
  may_have_more_ = true;
  while (!ended_ && total < read_call_bytes) {
    const size_t room = make_room();
    if (room == 0) return {};
    const size_t bulk = bulk_in_.to != nullptr ? bulk_in_.left : 0;
    const size_t got = read_once(room);
    if (!handshake_.done() && got != 0) MORI_CHECK(feed_handshake());
    total += got;
    may_have_more_ = got == bulk + room;  // else drained; saves the call that would say EAGAIN
    if (!may_have_more_) break;
    if (bulk != 0) return {};  // the bulk is there: its reader first
  }
  return {};
}

base::result<std::optional<frame>> channel::next() {
  if (!handshake_.done() || bulk_in_.is_due || unread() < header_bytes)
    return std::optional<frame>();
  const byte_span header = byte_span(incoming_).subspan(taken_, header_bytes);
  byte_reader in(header);
  const uint32_t payload_bytes = in.u32();
  const uint32_t bulk_bytes = in.u32();
  const uint16_t kind = in.u16();
  const uint16_t zero = in.u16();
  const uint64_t sequence = in.u64();
  if (payload_bytes > limits_.max_payload_bytes)
    return base::fail(MORI_E_PROTOCOL, "a frame of {} bytes, the limit is {}", payload_bytes,
                      limits_.max_payload_bytes);
  if (bulk_bytes > max_bulk_bytes_)
    return base::fail(MORI_E_PROTOCOL, "a frame with {} bytes of bulk, the limit is {}", bulk_bytes,
                      max_bulk_bytes_);
  if (zero != 0 || sequence != receive_sequence_)
    return base::fail(MORI_E_PROTOCOL, "frame {} came as frame {}", sequence, receive_sequence_);
  if (unread() < header_bytes + payload_bytes + mac_bytes) return std::optional<frame>();
  const byte_span payload = byte_span(incoming_).subspan(taken_ + header_bytes, payload_bytes);
  mac_array mac{};
  const byte_span covered[] = {header, payload};
  keyed_hash(handshake_.keys().receiving, "frame", covered, mac);
  if (!is_same(mac, given_mac(incoming_, taken_ + header_bytes + payload_bytes)))
    return base::fail(MORI_E_PROTOCOL, "frame {} is not authentic", sequence);
  taken_ += header_bytes + payload_bytes + mac_bytes;
  ++receive_sequence_;
  if (bulk_bytes != 0) bulk_in_ = {nullptr, bulk_bytes, bulk_bytes, sequence, true};
  return std::optional<frame>({kind, payload, bulk_bytes});
}

// --- Bulk

void channel::allow_bulk(uint32_t max_bytes, bool is_authenticated) {
  max_bulk_bytes_ = max_bytes;
  is_bulk_authenticated_ = is_authenticated;
}

// What came along with the frame was read into the buffer.
void channel::place_bulk(std::byte* to) {
  bulk_in_.to = to;
  const size_t here = std::min(unread(), bulk_in_.left);
  if (here != 0) std::memcpy(to, incoming_.data() + taken_, here);
  taken_ += here;
  bulk_in_.left -= here;
}

base::result<bool> channel::bulk_is_over() {
  if (!bulk_in_.is_due || bulk_in_.to == nullptr || bulk_in_.left != 0) return false;
  if (is_bulk_authenticated_) {
    if (unread() < mac_bytes) return false;
    const mac_array tag = bulk_tag(bulk_key(handshake_.keys().receiving), bulk_in_.sequence,
                                   {bulk_in_.to, bulk_in_.bytes});
    if (!is_same(tag, given_mac(incoming_, taken_)))
      return base::fail(MORI_E_PROTOCOL, "the bulk of frame {} is not authentic",
                        bulk_in_.sequence);
    taken_ += mac_bytes;
  }
  bulk_in_ = {};
  return true;
}

// --- Writing

// Bytes that the socket took.
size_t channel::write_now(std::span<const byte_span> pieces, int passed) {
  std::array<iovec, max_pieces> from{};
  size_t count = 0;
  for (const byte_span piece : pieces)
    if (!piece.empty())
      from[count++] = {const_cast<std::byte*>(piece.data()), piece.size()};  // only read
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = from.data();
  message.msg_iovlen = count;
  if (passed >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &passed, sizeof passed);
  }
  ssize_t sent = 0;
  do sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent >= 0) return static_cast<size_t>(sent);
  if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOTCONN) broken_ = true;
  return 0;
}

// The last piece is not copied if it stays where it is.
void channel::write_or_queue(std::span<const byte_span> pieces, bool last_stays) {
  if (broken_) return;
  size_t sent = is_clear() ? write_now(pieces, -1) : 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const size_t skip = std::min(sent, pieces[i].size());
    sent -= skip;
    const byte_span rest = pieces[i].subspan(skip);
    if (last_stays && i + 1 == pieces.size())
      bulk_out_ = rest;
    else
      queue_.insert(queue_.end(), rest.begin(), rest.end());
  }
}

base::status channel::send(uint16_t kind, std::initializer_list<byte_span> parts,
                           const bulk_source& bulk) {
  if (!handshake_.done()) return base::fail(MORI_E_STATE, "the handshake is not over");
  if (!has_room())
    return base::fail(MORI_E_AGAIN, "{} bytes wait to be sent, the limit is {}",
                      queued_bytes() + bulk_out_.size(), limits_.max_queue_bytes);
  std::array<byte_span, max_pieces> pieces{};
  if (parts.size() + 4 > pieces.size())
    return base::fail(MORI_E_INVALID, "{} parts in a frame, at most {}", parts.size(),
                      pieces.size() - 4);
  size_t payload_bytes = 0;
  size_t count = 1;
  for (const byte_span part : parts) {
    payload_bytes += part.size();
    pieces[count++] = part;
  }
  if (payload_bytes > limits_.max_payload_bytes)
    return base::fail(MORI_E_INVALID, "a frame of {} bytes, the limit is {}", payload_bytes,
                      limits_.max_payload_bytes);
  if (bulk.bytes.size() > max_bulk_bytes_)
    return base::fail(MORI_E_INVALID, "a frame with {} bytes of bulk, the limit is {}",
                      bulk.bytes.size(), max_bulk_bytes_);
  const uint64_t sequence = send_sequence_++;
  const header_array header = make_header(kind, payload_bytes, bulk.bytes.size(), sequence);
  pieces[0] = header;
  mac_array mac{};
  keyed_hash(handshake_.keys().sending, "frame", std::span(pieces).first(count), mac);
  pieces[count++] = std::as_bytes(std::span(mac));
  if (bulk.bytes.empty()) {
    write_or_queue(std::span(pieces).first(count));
    return {};
  }
  if (!is_bulk_authenticated_) {
    pieces[count++] = bulk.bytes;
    write_or_queue(std::span(pieces).first(count), bulk.stays);
    return {};
  }
  // Others may change it meanwhile: what the tag covers is what is sent.
  for (const byte_span piece : std::span(pieces).first(count))
    queue_.insert(queue_.end(), piece.begin(), piece.end());
  queue_.insert(queue_.end(), bulk.bytes.begin(), bulk.bytes.end());
  const mac_array tag = bulk_tag(bulk_key(handshake_.keys().sending), sequence,
                                 byte_span(queue_).last(bulk.bytes.size()));
  const byte_span tag_bytes = std::as_bytes(std::span(tag));
  queue_.insert(queue_.end(), tag_bytes.begin(), tag_bytes.end());
  on_writable();
  return {};
}

base::status channel::send_descriptor(uint16_t kind, byte_span payload, int passed) {
  if (!handshake_.done()) return base::fail(MORI_E_STATE, "the handshake is not over");
  if (!is_clear()) return base::fail(MORI_E_AGAIN, "{} bytes wait to be sent", queued_bytes());
  const header_array header = make_header(kind, payload.size(), 0, send_sequence_);
  mac_array mac{};
  const byte_span covered[] = {header, payload};
  keyed_hash(handshake_.keys().sending, "frame", covered, mac);
  const byte_span pieces[] = {header, payload, std::as_bytes(std::span(mac))};
  // The descriptor travels with the first byte, so all of it is sent by this
  // one call or nothing is.
  size_t sent = write_now(pieces, passed);
  if (broken_) return base::fail(MORI_E_PEER_DEAD, "the receiver is gone");
  if (sent == 0) return base::fail(MORI_E_AGAIN, "the socket takes nothing now");
  ++send_sequence_;
  for (const byte_span piece : pieces) {
    const size_t skip = std::min(sent, piece.size());
    sent -= skip;
    const byte_span rest = piece.subspan(skip);
    queue_.insert(queue_.end(), rest.begin(), rest.end());
  }
  return {};
}

void channel::on_writable() {
  while (wants_write()) {
    const std::array<byte_span, 2> rest{byte_span(queue_).subspan(head_), bulk_out_};
    const size_t sent = write_now(rest, -1);
    if (sent == 0) break;
    const size_t queued = std::min(sent, rest[0].size());
    head_ += queued;
    bulk_out_ = bulk_out_.subspan(sent - queued);
  }
  if (broken_) bulk_out_ = {};
  if (head_ == queue_.size() || broken_) {
    queue_.clear();
    head_ = 0;
  } else if (head_ > queue_.size() / 2) {
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(head_));
    head_ = 0;
  }
  if (finishing_ && is_clear()) {
    ::shutdown(fd_.get(), SHUT_WR);
    finishing_ = false;
  }
}

void channel::finish_sending() {
  finishing_ = true;
  on_writable();
}

}  // namespace mori::link::tcp
