// library_test.cpp - our declarations of libibverbs beside its header, where that is installed;
// and what is said where the library is missing, foreign or without a device.
#include <doctest/doctest.h>
#include <mori/link/transport.hpp>
#include <mori/link/verbs/device.hpp>

#include <type_traits>

#include "verbs/library.hpp"

#ifdef MORI_HAS_VERBS_HEADER
#include <infiniband/verbs.h>
#endif

using namespace mori;
namespace abi = mori::link::verbs::abi;

#ifdef MORI_HAS_VERBS_HEADER
namespace {

#define SAME_FIELD(ours, theirs, field)                                  \
  static_assert(offsetof(abi::ours, field) == offsetof(theirs, field) && \
                sizeof(abi::ours::field) == sizeof(theirs::field))
#define SAME_SIZE(ours, theirs) \
  static_assert(sizeof(abi::ours) == sizeof(theirs) && alignof(abi::ours) == alignof(theirs))

SAME_SIZE(sge, ibv_sge);
SAME_FIELD(sge, ibv_sge, addr);
SAME_FIELD(sge, ibv_sge, length);
SAME_FIELD(sge, ibv_sge, lkey);
SAME_SIZE(send_wr, ibv_send_wr);
SAME_FIELD(send_wr, ibv_send_wr, wr_id);
SAME_FIELD(send_wr, ibv_send_wr, next);
SAME_FIELD(send_wr, ibv_send_wr, sg_list);
SAME_FIELD(send_wr, ibv_send_wr, num_sge);
SAME_FIELD(send_wr, ibv_send_wr, opcode);
SAME_FIELD(send_wr, ibv_send_wr, send_flags);
SAME_FIELD(send_wr, ibv_send_wr, imm_data);
SAME_FIELD(send_wr, ibv_send_wr, wr.rdma.remote_addr);
SAME_FIELD(send_wr, ibv_send_wr, wr.rdma.rkey);
SAME_FIELD(send_wr, ibv_send_wr, wr.atomic.remote_addr);
SAME_FIELD(send_wr, ibv_send_wr, wr.atomic.compare_add);
SAME_FIELD(send_wr, ibv_send_wr, wr.atomic.swap);
SAME_FIELD(send_wr, ibv_send_wr, wr.atomic.rkey);
SAME_SIZE(recv_wr, ibv_recv_wr);
SAME_FIELD(recv_wr, ibv_recv_wr, sg_list);
SAME_FIELD(recv_wr, ibv_recv_wr, num_sge);
SAME_SIZE(wc, ibv_wc);
SAME_FIELD(wc, ibv_wc, wr_id);
SAME_FIELD(wc, ibv_wc, status);
SAME_FIELD(wc, ibv_wc, opcode);
SAME_FIELD(wc, ibv_wc, vendor_err);
SAME_FIELD(wc, ibv_wc, byte_len);
SAME_FIELD(wc, ibv_wc, imm_data);
SAME_FIELD(wc, ibv_wc, qp_num);
SAME_FIELD(wc, ibv_wc, wc_flags);
SAME_SIZE(context_ops, ibv_context_ops);
SAME_FIELD(context_ops, ibv_context_ops, poll_cq);
SAME_FIELD(context_ops, ibv_context_ops, req_notify_cq);
SAME_FIELD(context_ops, ibv_context_ops, post_send);
SAME_FIELD(context_ops, ibv_context_ops, post_recv);
SAME_FIELD(context, ibv_context, device);
SAME_FIELD(context, ibv_context, ops);
SAME_FIELD(context, ibv_context, cmd_fd);
SAME_FIELD(context, ibv_context, async_fd);
SAME_FIELD(context, ibv_context, num_comp_vectors);
SAME_SIZE(pd, ibv_pd);
SAME_SIZE(mr, ibv_mr);
SAME_FIELD(mr, ibv_mr, addr);
SAME_FIELD(mr, ibv_mr, length);
SAME_FIELD(mr, ibv_mr, lkey);
SAME_FIELD(mr, ibv_mr, rkey);
SAME_SIZE(comp_channel, ibv_comp_channel);
SAME_FIELD(comp_channel, ibv_comp_channel, fd);
SAME_FIELD(qp, ibv_qp, context);
SAME_FIELD(qp, ibv_qp, qp_num);
SAME_FIELD(cq, ibv_cq, context);
SAME_FIELD(cq, ibv_cq, channel);
SAME_FIELD(cq, ibv_cq, cqe);
SAME_SIZE(gid, ibv_gid);
SAME_SIZE(device_attr, ibv_device_attr);
SAME_FIELD(device_attr, ibv_device_attr, max_mr_size);
SAME_FIELD(device_attr, ibv_device_attr, max_qp_wr);
SAME_FIELD(device_attr, ibv_device_attr, max_sge);
SAME_FIELD(device_attr, ibv_device_attr, max_cqe);
SAME_FIELD(device_attr, ibv_device_attr, max_mr);
SAME_FIELD(device_attr, ibv_device_attr, max_qp_rd_atom);
SAME_FIELD(device_attr, ibv_device_attr, max_qp_init_rd_atom);
SAME_FIELD(device_attr, ibv_device_attr, atomic_cap);
SAME_FIELD(device_attr, ibv_device_attr, max_pkeys);
SAME_FIELD(device_attr, ibv_device_attr, phys_port_cnt);
SAME_SIZE(port_attr, ibv_port_attr);
SAME_FIELD(port_attr, ibv_port_attr, state);
SAME_FIELD(port_attr, ibv_port_attr, active_mtu);
SAME_FIELD(port_attr, ibv_port_attr, max_msg_sz);
SAME_FIELD(port_attr, ibv_port_attr, lid);
SAME_FIELD(port_attr, ibv_port_attr, link_layer);
SAME_SIZE(qp_cap, ibv_qp_cap);
SAME_FIELD(qp_cap, ibv_qp_cap, max_inline_data);
SAME_SIZE(qp_init_attr, ibv_qp_init_attr);
SAME_FIELD(qp_init_attr, ibv_qp_init_attr, send_cq);
SAME_FIELD(qp_init_attr, ibv_qp_init_attr, recv_cq);
SAME_FIELD(qp_init_attr, ibv_qp_init_attr, cap);
SAME_FIELD(qp_init_attr, ibv_qp_init_attr, qp_type);
SAME_FIELD(qp_init_attr, ibv_qp_init_attr, sq_sig_all);
SAME_SIZE(ah_attr, ibv_ah_attr);
SAME_FIELD(ah_attr, ibv_ah_attr, grh.dgid);
SAME_FIELD(ah_attr, ibv_ah_attr, grh.flow_label);
SAME_FIELD(ah_attr, ibv_ah_attr, grh.sgid_index);
SAME_FIELD(ah_attr, ibv_ah_attr, grh.hop_limit);
SAME_FIELD(ah_attr, ibv_ah_attr, grh.traffic_class);
SAME_FIELD(ah_attr, ibv_ah_attr, dlid);
SAME_FIELD(ah_attr, ibv_ah_attr, sl);
SAME_FIELD(ah_attr, ibv_ah_attr, is_global);
SAME_FIELD(ah_attr, ibv_ah_attr, port_num);
SAME_SIZE(qp_attr, ibv_qp_attr);
SAME_FIELD(qp_attr, ibv_qp_attr, qp_state);
SAME_FIELD(qp_attr, ibv_qp_attr, path_mtu);
SAME_FIELD(qp_attr, ibv_qp_attr, rq_psn);
SAME_FIELD(qp_attr, ibv_qp_attr, sq_psn);
SAME_FIELD(qp_attr, ibv_qp_attr, dest_qp_num);
SAME_FIELD(qp_attr, ibv_qp_attr, qp_access_flags);
SAME_FIELD(qp_attr, ibv_qp_attr, ah_attr);
SAME_FIELD(qp_attr, ibv_qp_attr, max_rd_atomic);
SAME_FIELD(qp_attr, ibv_qp_attr, max_dest_rd_atomic);
SAME_FIELD(qp_attr, ibv_qp_attr, min_rnr_timer);
SAME_FIELD(qp_attr, ibv_qp_attr, port_num);
SAME_FIELD(qp_attr, ibv_qp_attr, timeout);
SAME_FIELD(qp_attr, ibv_qp_attr, retry_cnt);
SAME_FIELD(qp_attr, ibv_qp_attr, rnr_retry);
SAME_SIZE(async_event, ibv_async_event);
SAME_FIELD(async_event, ibv_async_event, event_type);

#define SAME_VALUE(ours, theirs) static_assert(static_cast<int>(abi::ours) == theirs)
SAME_VALUE(wr_write, IBV_WR_RDMA_WRITE);
SAME_VALUE(wr_write_imm, IBV_WR_RDMA_WRITE_WITH_IMM);
SAME_VALUE(wr_read, IBV_WR_RDMA_READ);
SAME_VALUE(wr_compare_swap, IBV_WR_ATOMIC_CMP_AND_SWP);
SAME_VALUE(wr_fetch_add, IBV_WR_ATOMIC_FETCH_AND_ADD);
SAME_VALUE(send_fence, IBV_SEND_FENCE);
SAME_VALUE(send_signaled, IBV_SEND_SIGNALED);
SAME_VALUE(send_inline, IBV_SEND_INLINE);
SAME_VALUE(wc_success, IBV_WC_SUCCESS);
SAME_VALUE(wc_loc_len_err, IBV_WC_LOC_LEN_ERR);
SAME_VALUE(wc_loc_qp_op_err, IBV_WC_LOC_QP_OP_ERR);
SAME_VALUE(wc_loc_prot_err, IBV_WC_LOC_PROT_ERR);
SAME_VALUE(wc_wr_flush_err, IBV_WC_WR_FLUSH_ERR);
SAME_VALUE(wc_bad_resp_err, IBV_WC_BAD_RESP_ERR);
SAME_VALUE(wc_loc_access_err, IBV_WC_LOC_ACCESS_ERR);
SAME_VALUE(wc_rem_inv_req_err, IBV_WC_REM_INV_REQ_ERR);
SAME_VALUE(wc_rem_access_err, IBV_WC_REM_ACCESS_ERR);
SAME_VALUE(wc_rem_op_err, IBV_WC_REM_OP_ERR);
SAME_VALUE(wc_retry_exc_err, IBV_WC_RETRY_EXC_ERR);
SAME_VALUE(wc_rnr_retry_exc_err, IBV_WC_RNR_RETRY_EXC_ERR);
SAME_VALUE(wc_recv, IBV_WC_RECV);
SAME_VALUE(wc_recv_imm, IBV_WC_RECV_RDMA_WITH_IMM);
SAME_VALUE(access_local_write, IBV_ACCESS_LOCAL_WRITE);
SAME_VALUE(access_remote_write, IBV_ACCESS_REMOTE_WRITE);
SAME_VALUE(access_remote_read, IBV_ACCESS_REMOTE_READ);
SAME_VALUE(access_remote_atomic, IBV_ACCESS_REMOTE_ATOMIC);
SAME_VALUE(qps_reset, IBV_QPS_RESET);
SAME_VALUE(qps_init, IBV_QPS_INIT);
SAME_VALUE(qps_rtr, IBV_QPS_RTR);
SAME_VALUE(qps_rts, IBV_QPS_RTS);
SAME_VALUE(qps_err, IBV_QPS_ERR);
SAME_VALUE(qp_mask_state, IBV_QP_STATE);
SAME_VALUE(qp_mask_access_flags, IBV_QP_ACCESS_FLAGS);
SAME_VALUE(qp_mask_pkey_index, IBV_QP_PKEY_INDEX);
SAME_VALUE(qp_mask_port, IBV_QP_PORT);
SAME_VALUE(qp_mask_av, IBV_QP_AV);
SAME_VALUE(qp_mask_path_mtu, IBV_QP_PATH_MTU);
SAME_VALUE(qp_mask_timeout, IBV_QP_TIMEOUT);
SAME_VALUE(qp_mask_retry_cnt, IBV_QP_RETRY_CNT);
SAME_VALUE(qp_mask_rnr_retry, IBV_QP_RNR_RETRY);
SAME_VALUE(qp_mask_rq_psn, IBV_QP_RQ_PSN);
SAME_VALUE(qp_mask_max_rd_atomic, IBV_QP_MAX_QP_RD_ATOMIC);
SAME_VALUE(qp_mask_min_rnr_timer, IBV_QP_MIN_RNR_TIMER);
SAME_VALUE(qp_mask_sq_psn, IBV_QP_SQ_PSN);
SAME_VALUE(qp_mask_max_dest_rd_atomic, IBV_QP_MAX_DEST_RD_ATOMIC);
SAME_VALUE(qp_mask_dest_qpn, IBV_QP_DEST_QPN);
SAME_VALUE(event_cq_err, IBV_EVENT_CQ_ERR);
SAME_VALUE(event_qp_fatal, IBV_EVENT_QP_FATAL);
SAME_VALUE(event_device_fatal, IBV_EVENT_DEVICE_FATAL);
SAME_VALUE(event_port_active, IBV_EVENT_PORT_ACTIVE);
SAME_VALUE(event_port_err, IBV_EVENT_PORT_ERR);
static_assert(abi::qp_type_rc == IBV_QPT_RC && abi::state_active == IBV_PORT_ACTIVE &&
              abi::layer_infiniband == IBV_LINK_LAYER_INFINIBAND);

// Each parameter and result has the size of the header's, and is a pointer where that is.
template <class A, class B>
constexpr bool same_value() {
  if constexpr (std::is_void_v<A> || std::is_void_v<B>)
    return std::is_void_v<A> && std::is_void_v<B>;
  else
    return sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;
}
template <class A, class B>
struct same_call : std::false_type {};
template <class ResultA, class... A, class ResultB, class... B>
  requires(sizeof...(A) == sizeof...(B))
struct same_call<ResultA (*)(A...), ResultB (*)(B...)>
    : std::bool_constant<same_value<ResultA, ResultB>() && (same_value<A, B>() && ...)> {};

// Macros of the header stand before some of the functions.
#undef ibv_reg_mr
#undef ibv_query_port
#undef ibv_get_device_list
#define SAME_CALL(name, version, required, result, ...) \
  static_assert(same_call<decltype(abi::calls::name), decltype(&::name)>::value, #name);
MORI_VERBS_CALLS(SAME_CALL)

}  // namespace
#endif

TEST_CASE("a verbs library that is not there or is another's") {
  const auto missing = abi::open_library("libmori-no-such-verbs.so.1");
  REQUIRE(!missing);
  CHECK(missing.error().status == MORI_E_UNAVAILABLE);
  CHECK(missing.error().text.find("libmori-no-such-verbs.so.1") != std::string::npos);
  const auto foreign = abi::open_library("libm.so.6");
  REQUIRE(!foreign);
  CHECK(foreign.error().status == MORI_E_UNAVAILABLE);
  CHECK(foreign.error().text.find("it lacks ibv_get_device_list") != std::string::npos);
}

TEST_CASE("the verbs transport says why it is not there") {
  const link::answer here = link::verbs_transport().viable();
  if (link::verbs::read_inventory().empty()) {
    CHECK(!here.yes);
    CHECK(here.reason == "no RDMA device here");
  }
  CHECK(!here.reason.empty());
  link::verbs::port_choice unusable;
  unusable.device = "mlx5_0";
  unusable.reason = "port 1 is DOWN, not ACTIVE";
  const auto opened = link::verbs::device::open(unusable, {});
  REQUIRE(!opened);
  CHECK(opened.error().status == MORI_E_UNAVAILABLE);
  CHECK(opened.error().text == "mlx5_0: port 1 is DOWN, not ACTIVE");
}
