// link.cppm - the headers of mori-link as the module mori.link, for code and tests that import. The
// headers are the source of truth; this unit only exports them and attaches nothing to the module.
module;
#include <mori/link/bytes.hpp>
#include <mori/link/group.hpp>
#include <mori/link/handover.hpp>
#include <mori/link/handshake.hpp>
#include <mori/link/segment.hpp>
#include <mori/link/tcp/address.hpp>
#include <mori/link/tcp/channel.hpp>
#include <mori/link/transport.hpp>
#include <mori/link/unique_id.hpp>
#include <mori/link/verbs/choice.hpp>
#include <mori/link/verbs/device.hpp>
#include <mori/link/verbs/endpoint.hpp>
#include <mori/link/verbs/inventory.hpp>
#include <mori/link/verbs/queue_pair.hpp>

export module mori.link;

export namespace mori::link {
using mori::link::answer;
using mori::link::as_bytes;
using mori::link::byte_reader;
using mori::link::byte_span;
using mori::link::byte_vector;
using mori::link::byte_writer;
using mori::link::connection_purpose;
using mori::link::desk_address;
using mori::link::fresh_nonce;
using mori::link::group;
using mori::link::group_fault;
using mori::link::group_options;
using mori::link::handed;
using mori::link::handover_desk;
using mori::link::handover_visit;
using mori::link::handshake;
using mori::link::handshake_options;
using mori::link::hello;
using mori::link::make_unique_id;
using mori::link::max_handover_bytes;
using mori::link::peer_link;
using mori::link::place;
using mori::link::segment;
using mori::link::session_keys;
using mori::link::shared_memory_transport;
using mori::link::tcp_transport;
using mori::link::this_place;
using mori::link::transport;
using mori::link::transports;
using mori::link::unique_id;
using mori::link::verbs_transport;
}  // namespace mori::link
export namespace mori::link::tcp {
using mori::link::tcp::accept_one;
using mori::link::tcp::address;
using mori::link::tcp::bulk_source;
using mori::link::tcp::channel;
using mori::link::tcp::channel_limits;
using mori::link::tcp::connect_outcome;
using mori::link::tcp::frame;
using mori::link::tcp::host_addresses;
using mori::link::tcp::limit_unanswered;
using mori::link::tcp::listen_anywhere;
using mori::link::tcp::listener;
using mori::link::tcp::max_addresses;
using mori::link::tcp::read_address;
using mori::link::tcp::start_connecting;
using mori::link::tcp::write_address;
}  // namespace mori::link::tcp
export namespace mori::link::verbs {
using mori::link::verbs::access;
using mori::link::verbs::bus_place;
using mori::link::verbs::by_distance;
using mori::link::verbs::choose_gid;
using mori::link::verbs::completion;
using mori::link::verbs::completion_queue;
using mori::link::verbs::device;
using mori::link::verbs::device_fact;
using mori::link::verbs::device_filter;
using mori::link::verbs::device_limits;
using mori::link::verbs::distance;
using mori::link::verbs::endpoint;
using mori::link::verbs::far_numa_node;
using mori::link::verbs::gid_fact;
using mori::link::verbs::gid_kind;
using mori::link::verbs::judge_ports;
using mori::link::verbs::max_gid_index;
using mori::link::verbs::max_work_segments;
using mori::link::verbs::memory;
using mori::link::verbs::operation;
using mori::link::verbs::port_address;
using mori::link::verbs::port_choice;
using mori::link::verbs::port_fact;
using mori::link::verbs::ports_here;
using mori::link::verbs::queue_address;
using mori::link::verbs::queue_pair;
using mori::link::verbs::read_bus_place;
using mori::link::verbs::read_inventory;
using mori::link::verbs::same_numa_node;
using mori::link::verbs::segment;
using mori::link::verbs::settings;
using mori::link::verbs::settings_from_environment;
using mori::link::verbs::unknown_numa_node;
using mori::link::verbs::work;
}  // namespace mori::link::verbs
