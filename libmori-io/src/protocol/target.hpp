// target.hpp - the serving end of a link: receives slices straight into regions,
// serves reads out of them, and remembers what was delivered, so that nothing is
// done twice whatever happens to connections. Every range and capability is
// checked here before a byte is touched. Its other end is initiator.hpp.
#pragma once

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "memory/region.hpp"
#include "protocol/journal.hpp"
#include "protocol/ring.hpp"
#include "protocol/stream.hpp"

namespace mori::io_core::protocol {

// A transfer of the initiator is complete.
struct delivery {
  uint64_t uid = 0;
  uint64_t total_bytes = 0;
  uint32_t region = 0;
  int32_t operation = 0;         // MORI_IO_READ, MORI_IO_WRITE
  bool moved_elsewhere = false;  // its bytes did not come over the link
  std::span<const std::byte> metadata;
};

class target final : private stream::handler {
 public:
  class host {
   public:
    virtual std::shared_ptr<const memory::region> find_region(uint32_t id) = 0;
    // Why bytes are not taken over the link; empty: they are.
    virtual std::string_view refusal() = 0;
    virtual void on_delivered(const delivery& what) = 0;
    virtual void on_revoked(uint32_t region) = 0;

    virtual ~host() = default;

    // Transfers of all its links that have come in part: a bound on what guests can make it keep.
    uint64_t assembly_count = 0;
    uint64_t max_assembly_count = uint64_t{1} << 18;
  };

  target(host& to, std::string peer) : host_(to), peer_(std::move(peer)) {}
  target(const target&) = delete;
  target& operator=(const target&) = delete;
  ~target() { drop_assemblies(); }

  // A generation begins with its control stream; those before are gone already.
  void on_control(stream& control, uint64_t generation);
  void add_data(stream& data);
  void on_lost();
  base::status receive(stream& from, uint64_t bytes);
  // Answers that are due, and bytes that were asked for.
  void pump();
  // False: enough is asked for; do not read from it until bytes have gone.
  bool wants_input(const stream& from) const;

  // The region was taken out: incoming bytes for it go nowhere. True: bytes of it are on their way
  // out, so the streams must be closed.
  bool drop_region(uint32_t id);
  // Whether it may use the region without this side's help.
  bool has_attached(uint32_t region) const { return attached_.contains(region); }
  void revoke(uint32_t region);
  void say_goodbye(std::string_view why);

  bool is_connected() const { return !lanes_.empty(); }
  uint64_t generation() const { return generation_; }
  const std::string& peer() const { return peer_; }

 private:
  // A transfer that comes in several slices.
  struct assembly {
    uint32_t slice_count = 0;
    uint32_t received = 0;
    std::vector<std::byte> metadata;
  };
  using assembly_map = std::unordered_map<uint64_t, assembly>;  // by sequence
  // What the payload that is coming in belongs to.
  struct incoming {
    bool is_wanted = false;
    wire::slice what;  // its metadata: in `metadata`
    std::shared_ptr<const memory::region> region;
    std::vector<std::byte> metadata;
  };
  // A slice that was asked for, or the refusal of it.
  struct serving {
    uint64_t sequence = 0;
    uint32_t slice_index = 0;
    mori_status refused = MORI_OK;
    std::string text;
    uint64_t bytes = 0;
    std::shared_ptr<const memory::region> region;
    std::vector<wire::segment> segments;
    stream::pin_count pins = 0;
  };
  struct lane {
    stream* on = nullptr;
    incoming in;
    ring<std::unique_ptr<serving>> waiting;
    ring<std::unique_ptr<serving>> leaving;  // queued in the stream
  };

  base::status on_message(stream& from, wire::message_kind kind, wire::byte_room body,
                          uint32_t payload_bytes, payload_place& place) override;
  base::status on_payload(stream& from, bool authentic) override;
  base::status on_write(lane& on, wire::byte_span body, uint32_t payload_bytes,
                        payload_place& place);
  base::status on_read(lane& on, wire::byte_span body);
  base::status on_notify(wire::byte_span body);
  base::status on_attach(wire::byte_span body);
  base::status on_cancel(wire::byte_span body);
  base::status on_resume(wire::byte_span body);
  base::status on_heartbeat(wire::byte_span body);
  base::status check_sequence(const wire::slice& what);
  base::result<std::shared_ptr<const memory::region>> check_slice(const wire::slice_view& what,
                                                                  int32_t access);
  void fail(const wire::slice& what, const base::failure& why);
  void on_slice(const wire::slice& what, std::span<const std::byte> metadata);
  base::result<assembly*> assembly_of(const wire::slice& what);
  void drop_assembly(uint64_t sequence);
  void drop_assemblies();
  void deliver(const wire::slice& what, std::span<const std::byte> metadata);
  std::unique_ptr<serving> take_serving();
  void serve(lane& on);
  void serve_one(lane& on, std::unique_ptr<serving> what);
  void flush_acks();
  lane* lane_of(const stream& which);

  host& host_;
  std::string peer_;
  journal journal_;
  assembly_map assemblies_;
  std::vector<assembly_map::node_type> spare_assemblies_;  // so that none is allocated again
  std::vector<wire::outcome> acks_;
  std::vector<std::unique_ptr<serving>> spare_;
  std::set<uint32_t> attached_;  // regions; of this generation
  std::deque<lane> lanes_;       // [0]: control
  uint64_t generation_ = 0;
  bool resumed_ = false;
};

}  // namespace mori::io_core::protocol
