// peer.hpp - another engine as this one sees it: a peer that was registered, with
// the link to it; or a guest whose link comes in. Both belong to the engine, whose
// lock covers everything here but what never changes.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/connection.hpp"
#include "protocol/initiator.hpp"
#include "protocol/target.hpp"
#include "wire/descriptor.hpp"

namespace mori::io_core {

struct transfer_record;

class peer {
 public:
  peer(protocol::initiator::host& host, std::shared_ptr<const wire::engine_desc> known,
       const protocol::initiator::options& options)
      : desc(std::move(known)), link(host, options) {}

  const std::shared_ptr<const wire::engine_desc> desc;
  const std::string& key() const { return desc->key; }
  // What the target knows this link by. Not this engine's instance: a peer that is registered again
  // gets a new link, and nobody else may know it before.
  const wire::instance_id link_id = wire::fresh_instance();

  protocol::initiator link;
  connection* control = nullptr;
  std::vector<connection*> data;  // of this generation, open or not
  bool is_gone = false;           // deregistered or replaced
  bool is_dead = false;           // until it is reached again
  size_t next_address = 0;
  uint32_t attempts = 0;       // since the last success
  uint64_t retry_ns = 0;       // not before
  uint64_t down_since_ns = 0;  // 0: it is up, or nobody needs it
  uint64_t refused_since_ns = 0;
  std::string last_failure;
  std::vector<transfer_record*> holding;  // wait for the link
  bool release_due = false;               // some of these may go on
  uint64_t ready_generation = 0;          // the last one in which the link was up
  uint64_t moving = 0;                    // transfers in jobs of direct backends
  // Regions that paths use: asked for in that generation, and whether the peer has agreed. Without
  // its word nothing moves along a path: it may have taken the memory back meanwhile.
  struct attachment {
    uint64_t generation = 0;
    bool agreed = false;
  };
  std::unordered_map<uint32_t, attachment> attachments;
  bool is_dirty = false;  // to be flushed in this turn

  bool may_use(uint32_t region) const {
    const auto found = attachments.find(region);
    return link.is_ready() && found != attachments.end() && found->second.agreed &&
           found->second.generation == link.generation();
  }
  bool is_busy() const { return link.has_work() || !holding.empty(); }
};

class guest {
 public:
  guest(protocol::target::host& host, const wire::identity& who, const wire::public_key& its_key,
        uint32_t number)
      : key(who.key),
        instance(who.instance),
        public_key(its_key),
        inbox_number(number),
        link(host, who.key) {}

  const std::string key;
  const wire::instance_id instance;
  const wire::public_key public_key;
  const uint32_t inbox_number;
  protocol::target link;
  connection* control = nullptr;
  std::vector<connection*> data;
  uint64_t lost_ns = 0;  // since when it has no connection
  bool is_dirty = false;
};

}  // namespace mori::io_core
