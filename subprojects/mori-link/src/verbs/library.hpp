// library.hpp - libibverbs.so.1, opened at run time: the part of its interface that
// is used here, declared by hand so that every build has it, whatever is
// installed where it is made. The interface is stable (its symbols are versioned);
// library_test.cpp compares each declaration with the header where that is.
//
// What verbs.h defines inline goes through the context's table of operations:
// ops.poll_cq, ops.req_notify_cq, ops.post_send, ops.post_recv.
#pragma once

#include <mori/base/result.hpp>

#include <cstddef>
#include <cstdint>

namespace mori::link::verbs::abi {

struct context;
struct device;
struct pd;
struct qp;
struct cq;
struct mr;

struct sge {
  uint64_t addr;
  uint32_t length;
  uint32_t lkey;
};

struct send_wr {
  uint64_t wr_id;
  send_wr* next;
  sge* sg_list;
  int num_sge;
  int opcode;
  unsigned send_flags;
  uint32_t imm_data;  // in network order
  union {
    struct {
      uint64_t remote_addr;
      uint32_t rkey;
    } rdma;
    struct {
      uint64_t remote_addr;
      uint64_t compare_add;
      uint64_t swap;
      uint32_t rkey;
    } atomic;
  } wr;
  uint64_t others[7];  // for kinds of queue pairs that are not used here
};

struct recv_wr {
  uint64_t wr_id;
  recv_wr* next;
  sge* sg_list;
  int num_sge;
};

struct wc {
  uint64_t wr_id;
  int status;
  int opcode;
  uint32_t vendor_err;
  uint32_t byte_len;
  uint32_t imm_data;
  uint32_t qp_num;
  uint32_t src_qp;
  unsigned wc_flags;
  uint16_t pkey_index;
  uint16_t slid;
  uint8_t sl;
  uint8_t dlid_path_bits;
};

// Functions that have an exported symbol are not called through this table.
struct context_ops {
  void* before_poll_cq[11];
  int (*poll_cq)(cq*, int, wc*);
  int (*req_notify_cq)(cq*, int);
  void* before_post_send[12];
  int (*post_send)(qp*, send_wr*, send_wr**);
  int (*post_recv)(qp*, recv_wr*, recv_wr**);
  void* behind[5];
};

// Objects that the library makes; only their beginnings matter here.
struct context {
  abi::device* device;
  context_ops ops;
  int cmd_fd;
  int async_fd;
  int num_comp_vectors;
};
struct pd {
  abi::context* context;
  uint32_t handle;
};
struct mr {
  abi::context* context;
  abi::pd* pd;
  void* addr;
  size_t length;
  uint32_t handle;
  uint32_t lkey;
  uint32_t rkey;
};
struct comp_channel {
  abi::context* context;
  int fd;
  int refcnt;
};
struct qp {
  abi::context* context;
  void* qp_context;
  abi::pd* pd;
  cq* send_cq;
  cq* recv_cq;
  void* srq;
  uint32_t handle;
  uint32_t qp_num;
};
struct cq {
  abi::context* context;
  comp_channel* channel;
  void* cq_context;
  uint32_t handle;
  int cqe;
};

union gid {
  uint8_t raw[16];
  struct {
    uint64_t subnet_prefix;
    uint64_t interface_id;
  } global;
};

struct device_attr {
  char fw_ver[64];
  uint64_t node_guid;
  uint64_t sys_image_guid;
  uint64_t max_mr_size;
  uint64_t page_size_cap;
  uint32_t vendor_id;
  uint32_t vendor_part_id;
  uint32_t hw_ver;
  int max_qp;
  int max_qp_wr;
  unsigned device_cap_flags;
  int max_sge;
  int max_sge_rd;
  int max_cq;
  int max_cqe;
  int max_mr;
  int max_pd;
  int max_qp_rd_atom;
  int max_ee_rd_atom;
  int max_res_rd_atom;
  int max_qp_init_rd_atom;
  int max_ee_init_rd_atom;
  int atomic_cap;
  int not_used_here[14];
  uint16_t max_pkeys;
  uint8_t local_ca_ack_delay;
  uint8_t phys_port_cnt;
};

struct port_attr {
  int state;
  int max_mtu;
  int active_mtu;
  int gid_tbl_len;
  uint32_t port_cap_flags;
  uint32_t max_msg_sz;
  uint32_t bad_pkey_cntr;
  uint32_t qkey_viol_cntr;
  uint16_t pkey_tbl_len;
  uint16_t lid;
  uint16_t sm_lid;
  uint8_t lmc;
  uint8_t max_vl_num;
  uint8_t sm_sl;
  uint8_t subnet_timeout;
  uint8_t init_type_reply;
  uint8_t active_width;
  uint8_t active_speed;
  uint8_t phys_state;
  uint8_t link_layer;
  uint8_t flags;
  uint16_t port_cap_flags2;
};

struct qp_cap {
  uint32_t max_send_wr;
  uint32_t max_recv_wr;
  uint32_t max_send_sge;
  uint32_t max_recv_sge;
  uint32_t max_inline_data;
};

struct qp_init_attr {
  void* qp_context;
  cq* send_cq;
  cq* recv_cq;
  void* srq;
  qp_cap cap;
  int qp_type;
  int sq_sig_all;
};

struct ah_attr {
  struct {
    gid dgid;
    uint32_t flow_label;
    uint8_t sgid_index;
    uint8_t hop_limit;
    uint8_t traffic_class;
  } grh;
  uint16_t dlid;
  uint8_t sl;
  uint8_t src_path_bits;
  uint8_t static_rate;
  uint8_t is_global;
  uint8_t port_num;
};

struct qp_attr {
  int qp_state;
  int cur_qp_state;
  int path_mtu;
  int path_mig_state;
  uint32_t qkey;
  uint32_t rq_psn;
  uint32_t sq_psn;
  uint32_t dest_qp_num;
  unsigned qp_access_flags;
  qp_cap cap;
  abi::ah_attr ah_attr;
  abi::ah_attr alt_ah_attr;
  uint16_t pkey_index;
  uint16_t alt_pkey_index;
  uint8_t en_sqd_async_notify;
  uint8_t sq_draining;
  uint8_t max_rd_atomic;
  uint8_t max_dest_rd_atomic;
  uint8_t min_rnr_timer;
  uint8_t port_num;
  uint8_t timeout;
  uint8_t retry_cnt;
  uint8_t rnr_retry;
  uint8_t alt_port_num;
  uint8_t alt_timeout;
  uint32_t rate_limit;
};

struct async_event {
  union {
    void* object;
    int port_num;
  } element;
  int event_type;
};

enum opcode : int {
  wr_write = 0,
  wr_write_imm = 1,
  wr_read = 4,
  wr_compare_swap = 5,
  wr_fetch_add = 6,
};
enum send_flag : unsigned { send_fence = 1, send_signaled = 2, send_inline = 8 };
enum wc_status : int {
  wc_success = 0,
  wc_loc_len_err = 1,
  wc_loc_qp_op_err = 2,
  wc_loc_prot_err = 4,
  wc_wr_flush_err = 5,
  wc_bad_resp_err = 7,
  wc_loc_access_err = 8,
  wc_rem_inv_req_err = 9,
  wc_rem_access_err = 10,
  wc_rem_op_err = 11,
  wc_retry_exc_err = 12,
  wc_rnr_retry_exc_err = 13,
};
enum wc_opcode : int { wc_recv = 128, wc_recv_imm = 129 };
enum access_flag : unsigned {
  access_local_write = 1,
  access_remote_write = 2,
  access_remote_read = 4,
  access_remote_atomic = 8,
};
enum qp_state : int { qps_reset = 0, qps_init = 1, qps_rtr = 2, qps_rts = 3, qps_err = 6 };
enum qp_mask : int {
  qp_mask_state = 1 << 0,
  qp_mask_access_flags = 1 << 3,
  qp_mask_pkey_index = 1 << 4,
  qp_mask_port = 1 << 5,
  qp_mask_av = 1 << 7,
  qp_mask_path_mtu = 1 << 8,
  qp_mask_timeout = 1 << 9,
  qp_mask_retry_cnt = 1 << 10,
  qp_mask_rnr_retry = 1 << 11,
  qp_mask_rq_psn = 1 << 12,
  qp_mask_max_rd_atomic = 1 << 13,
  qp_mask_min_rnr_timer = 1 << 15,
  qp_mask_sq_psn = 1 << 16,
  qp_mask_max_dest_rd_atomic = 1 << 17,
  qp_mask_dest_qpn = 1 << 20,
};
enum event_type : int {
  event_cq_err = 0,
  event_qp_fatal = 1,
  event_device_fatal = 8,
  event_port_active = 9,
  event_port_err = 10,
};
inline constexpr int qp_type_rc = 2;
inline constexpr int state_active = 4;
inline constexpr int layer_infiniband = 1;

// name, version of the symbol, whether it must be there, result, parameters
#define MORI_VERBS_CALLS(X)                                                                   \
  X(ibv_get_device_list, "IBVERBS_1.1", true, device**, int*)                                 \
  X(ibv_free_device_list, "IBVERBS_1.1", true, void, device**)                                \
  X(ibv_get_device_name, "IBVERBS_1.1", true, const char*, device*)                           \
  X(ibv_open_device, "IBVERBS_1.1", true, context*, device*)                                  \
  X(ibv_close_device, "IBVERBS_1.1", true, int, context*)                                     \
  X(ibv_query_device, "IBVERBS_1.1", true, int, context*, device_attr*)                       \
  X(ibv_query_port, "IBVERBS_1.1", true, int, context*, uint8_t, port_attr*)                  \
  X(ibv_query_gid, "IBVERBS_1.1", true, int, context*, uint8_t, int, gid*)                    \
  X(ibv_alloc_pd, "IBVERBS_1.1", true, pd*, context*)                                         \
  X(ibv_dealloc_pd, "IBVERBS_1.1", true, int, pd*)                                            \
  X(ibv_reg_mr, "IBVERBS_1.1", true, mr*, pd*, void*, size_t, int)                            \
  X(ibv_reg_dmabuf_mr, "IBVERBS_1.12", false, mr*, pd*, uint64_t, size_t, uint64_t, int, int) \
  X(ibv_dereg_mr, "IBVERBS_1.1", true, int, mr*)                                              \
  X(ibv_create_comp_channel, "IBVERBS_1.0", true, comp_channel*, context*)                    \
  X(ibv_destroy_comp_channel, "IBVERBS_1.0", true, int, comp_channel*)                        \
  X(ibv_create_cq, "IBVERBS_1.1", true, cq*, context*, int, void*, comp_channel*, int)        \
  X(ibv_destroy_cq, "IBVERBS_1.1", true, int, cq*)                                            \
  X(ibv_get_cq_event, "IBVERBS_1.1", true, int, comp_channel*, cq**, void**)                  \
  X(ibv_ack_cq_events, "IBVERBS_1.1", true, void, cq*, unsigned)                              \
  X(ibv_create_qp, "IBVERBS_1.1", true, qp*, pd*, qp_init_attr*)                              \
  X(ibv_modify_qp, "IBVERBS_1.1", true, int, qp*, qp_attr*, int)                              \
  X(ibv_destroy_qp, "IBVERBS_1.1", true, int, qp*)                                            \
  X(ibv_get_async_event, "IBVERBS_1.1", true, int, context*, async_event*)                    \
  X(ibv_ack_async_event, "IBVERBS_1.1", true, void, async_event*)                             \
  X(ibv_wc_status_str, "IBVERBS_1.1", true, const char*, int)

struct calls {
#define MORI_VERBS_CALL(name, version, required, result, ...) result (*name)(__VA_ARGS__) = nullptr;
  MORI_VERBS_CALLS(MORI_VERBS_CALL)
#undef MORI_VERBS_CALL
};

// The library, opened once and never closed. MORI_E_UNAVAILABLE, also tried again later: it is not
// installed, or too old (then with what it lacks).
base::result<const calls*> library();
base::result<const calls*> open_library(const char* name);

}  // namespace mori::link::verbs::abi
