// get.hpp - loads from a peer. The non-blocking forms are complete after
// quiet() on the own PE (for mapped peers at once, lane by lane); the blocking
// forms when the call returns, for all lanes of the group.
#pragma once

#include <mori/device/copy.hpp>
#include <mori/device_api/ring.hpp>

namespace mori::device_api {

// One get: bytes from a symmetric address on PE pe to any address of this PE.
struct get_request {
  void* to;
  const void* from;
  u64 bytes;
  i32 pe;
  i32 queue_pair = 0;
};

template <class T>
struct typed_get_request {
  T* to;
  const T* from;
  u64 count;
  i32 pe;
  i32 queue_pair = 0;
};

template <class Group>
MORI_DEVICE i32 getmem_by_network(const Group& group, const state& s, const get_request& get,
                                  bool waits) {
  if (get.bytes == 0) return MORI_OK;
  command what = command_for(s, MORI_SHMEM_COMMAND_GET, {get.from, get.bytes, get.pe});
  what.local = device::address(get.to);
  return post_for_group(group, s, {MORI_SHMEM_OP_GET, get.queue_pair, waits}, what);
}

// waits: the caller drains the ring next.
template <class Group>
MORI_HOT i32 start_get(const Group& group, const state& s, const get_request& get, bool waits) {
  const reached source = route(s, MORI_SHMEM_OP_GET, {get.from, get.bytes, get.pe});
  if (source.status == by_network) return getmem_by_network(group, s, get, waits);
  if (source.status == MORI_OK)
    device::copy(group, get.to, device::pointer<const void>(source.address),
                 static_cast<usz>(get.bytes));
  return source.status;
}

template <class Group>
MORI_HOT i32 getmem_nbi(const Group& group, const state& s, const get_request& get) {
  return start_get(group, s, get, false);
}

template <class Group>
MORI_HOT i32 getmem(const Group& group, const state& s, const get_request& get) {
  i32 status = start_get(group, s, get, true);
  if (s.ring_count != 0 && status == MORI_OK) status = drain(group, s, get.pe, get.queue_pair);
  group.sync();
  return status;
}

template <class Group, class T>
MORI_HOT i32 get_nbi(const Group& group, const state& s, const typed_get_request<T>& get) {
  return getmem_nbi(group, s, {get.to, get.from, bytes_of<T>(get.count), get.pe, get.queue_pair});
}

template <class Group, class T>
MORI_HOT i32 get(const Group& group, const state& s, const typed_get_request<T>& get) {
  return getmem(group, s, {get.to, get.from, bytes_of<T>(get.count), get.pe, get.queue_pair});
}

}  // namespace mori::device_api
