"""EpDispatchCombineOp: dispatch and combine on a context.

An operator holds the C handle and says in which order things happen; what is checked of arguments
stands in mori/ops/_arguments.py, what is returned in mori/ops/_results.py. Letters as in
mori/ops/_config.py; T = tokens of a call on this rank. Read mori/ep.h for what a call blocks on
and fails with.
"""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from mori._arrays import NUMPY, Array, DType, Framework, size_bytes_of
from mori._raw import CData, number
from mori._raw import ep as raw
from mori.errors import InvalidError, StateError, UnsupportedError
from mori.ops._arguments import Arguments
from mori.ops._config import TOKEN_TYPES, EpDispatchCombineConfig
from mori.ops._results import CombineResult, DispatchResult, Results
from mori.shmem._backend import device_guard
from mori.shmem._context import Context
from mori.shmem._default import current_context
from mori.shmem._lease import Lease

_BUSY = "another thread is in a call of this dispatch/combine operator"


@dataclass(frozen=True)
class OpMemory:
    """Bytes from each PE's symmetric heap, bytes of ordinary memory, and R."""

    symmetric_bytes: int
    private_bytes: int
    recv_token_capacity: int


class EpDispatchCombineOp:
    """An operator: its buffers and its place in the sequence of calls.

    config   EpDispatchCombineConfig; all ranks make theirs, collectively, with equal ones
    context  the mori.shmem.Context; None: config.context, else the calling thread's

    Raises StateError before init and after finalize, InvalidError, MismatchError (configs
    differ), NoMemoryError, UnsupportedError (kernel type or quantisation not in this build).

    All ranks call dispatch and combine in the same order, ranks without tokens included. One call
    at a time: a second thread gets StateError. Buffers are freed by close(), or when the operator
    and all views of its results are gone; that must happen on all ranks before the next
    allocation on the context.
    """

    def __init__(self, config: EpDispatchCombineConfig, *, context: Context | None = None) -> None:
        self._handle: CData | None = None
        # A copy, checked again: the buffers have these sizes, whatever is assigned later.
        config = dataclasses.replace(config)
        chosen = current_context(context if context is not None else config.context)
        if (config.rank, config.world_size) != (chosen.pe, chosen.pe_count):
            raise InvalidError(
                f"config is for rank {config.rank} of {config.world_size}, the shmem context is "
                f"PE {chosen.pe} of {chosen.pe_count}"
            )
        self._config = config
        self.context = chosen
        with device_guard(chosen.place):
            handle = raw.mori_ep_create(chosen.handle(), **config.c_fields())
        self._lease: Lease | None = Lease(raw.mori_ep_destroy, handle, chosen.lease())
        self._handle = handle
        self._lock = threading.Lock()
        self._arguments = Arguments(config, chosen.kinds)
        self._results = Results(config, chosen.kinds, self._arguments)
        self._pending: str | None = None
        chosen.add_operator(self)

    @property
    def config(self) -> EpDispatchCombineConfig:
        """A copy of the config: assigning to its fields does not change the operator."""
        return dataclasses.replace(self._config)

    @staticmethod
    def memory(config: EpDispatchCombineConfig) -> OpMemory:
        """What an operator of this config takes, before anything is allocated.

        Raises InvalidError for what the constructor would refuse. Needs no context.
        """
        need = raw.mori_ep_memory_query(config.world_size, **config.c_fields())
        return OpMemory(need.symmetric_bytes, need.private_bytes, need.recv_token_capacity_count)

    # Lifetime

    def close(self) -> None:
        """Ends the operator; calling it again does nothing. Views of its buffers stay safe.

        A call that another thread is in goes on to its end.
        """
        # First the lease: a call in another thread keeps what it made only while it is there.
        self._handle = self._lease = None
        self._results.forget()

    def __repr__(self) -> str:
        if self._handle is None:
            return "<mori.ops.EpDispatchCombineOp: closed>"
        config = self._config
        return (
            f"<mori.ops.EpDispatchCombineOp: {config.kernel_type.name}, rank {config.rank} of "
            f"{config.world_size}, hidden_dim {config.hidden_dim}>"
        )

    def _live(self) -> CData:
        self.context.refuse_dead()
        handle = self._handle
        if handle is None:
            raise StateError("this dispatch/combine operator was closed")
        return handle

    def _leased(self) -> tuple[CData, Lease]:
        """The handle, and what keeps it and its buffers alive if close() comes meanwhile."""
        lease, handle = self._lease, self._live()
        if lease is None:
            raise StateError("this dispatch/combine operator was closed")
        return handle, lease

    # Dispatch

    def dispatch(
        self,
        input: Array,
        weights: Array | None,
        scales: Array | None,
        indices: Array,
        block_num: int = -1,
        rdma_block_num: int = -1,
        warp_per_block: int = -1,
        call_local_expert_count: bool = False,
        *,
        routing: Any = None,
        return_routing: bool = False,
        stream: Any = None,
    ) -> DispatchResult:
        """Sends each token once to each distinct rank that owns one of its experts. Collective.

        input    [T, H] tokens, T <= M (0 is fine), H <= hidden_dim; float32, bfloat16, float16,
                 float8_e4m3fn or float8_e4m3fnuz
        weights  [T, K] float32, or None
        scales   [T, S] of scale_type_size bytes, or None
        indices  [T, K] int32 expert ids; < 0: slot not routed
        block_num, rdma_block_num, warp_per_block
                 launch requests; -1: the config's
        call_local_expert_count
                 True: also fill `local_expert_count`
        stream   on a GPU: a handle or an object of torch, cupy or the like; None: the stream that
                 torch works on, or that an array of another library names, else the default one

        Returns (out [R, H], weights [R, K] or None, scales [R, S] or None, indices [R, K],
        count [1] int32): views of the operator's buffers, which the next call reuses; only the
        first `count` rows are specified. Rows are in order of (source rank, source token).

        Raises InvalidError (wrong shape, dtype, stride, device, T above M, expert id out of
        range), RecvOverflowError (on all ranks; nothing was written and the operator is usable),
        MismatchError (ranks differ in dtype or H), WaitTimeoutError, PeerDeadError, AbortedError,
        StateError.

        On a GPU the call enqueues its work and returns. What only the device can find (a bad
        expert id, an overflow, ranks that differ, a peer that is gone) is raised by the next call
        or check(); with MORI_CHECK=sync in the environment at the operator's creation each call
        waits and raises its own. It may be captured in a graph and replayed.

        On the host the exchange is one C call, so Ctrl-C takes effect when it returns: at the
        latest at its deadline, timeout_s of the config, else wait_timeout_s of the context. Choose
        a shorter one there if 300 s is too long; abort() of the context in another thread ends it
        at once.
        """
        if routing is not None or return_routing:
            raise UnsupportedError("routing handles are not in this release: routing=None")
        launch = (block_num, rdma_block_num, warp_per_block)
        handle, lease = self._leased()
        if not self._lock.acquire(blocking=False):
            raise StateError(_BUSY)
        try:
            arguments, results = self._arguments, self._results
            tokens = arguments.dispatch(
                input, weights, scales, indices, launch, call_local_expert_count, stream
            )
            # The call writes its results only when it succeeds.
            results.forget_dispatch()
            raw.mori_ep_dispatch(handle, arguments.dispatch_struct, results.dispatch_struct)
            found = results.dispatched(lease, tokens)
            if self._lease is None:  # closed meanwhile: what is kept would keep the buffers
                results.forget()
            return found
        finally:
            self._lock.release()

    def dispatch_send(
        self,
        input: Array,
        weights: Array | None,
        scales: Array | None,
        indices: Array,
        block_num: int = -1,
        rdma_block_num: int = -1,
        warp_per_block: int = -1,
        call_local_expert_count: bool = False,
        *,
        stream: Any = None,
    ) -> DispatchResult:
        """First half of a dispatch; arguments and results as of `dispatch`.

        The results may be read after dispatch_recv. The whole exchange happens here.
        """
        result = self.dispatch(
            input,
            weights,
            scales,
            indices,
            block_num,
            rdma_block_num,
            warp_per_block,
            call_local_expert_count,
            stream=stream,
        )
        self._pending = "dispatch"
        return result

    def dispatch_recv(
        self, block_num: int = -1, rdma_block_num: int = -1, warp_per_block: int = -1
    ) -> None:
        """Second half: completes the last dispatch_send; StateError when there is none."""
        self._receive("dispatch")

    # Combine

    def combine(
        self,
        input: Array,
        weights: Array | None,
        indices: Array,
        block_num: int = -1,
        rdma_block_num: int = -1,
        warp_per_block: int = -1,
        use_external_inp_buf: int = -1,
        call_reset: bool = False,
        *,
        routing: Any = None,
        stream: Any = None,
    ) -> CombineResult:
        """Brings the expert outputs of the last dispatch back and sums them. Collective.

        input    [n, H], n >= the receive count: what the experts of this rank made of the
                 received rows, in receive order, weighted and summed over its own experts by the
                 caller. With the registered buffer its contents are taken from there instead,
                 and `input` says only dtype and H
        weights  [n, K] float32 in receive order, or None
        indices  [T, K] int32: this rank's own routing, exactly as given to dispatch
        use_external_inp_buf
                 1: read `input`; 0: read the registered buffer; -1: as the config says
        stream   as of dispatch

        Returns (out [M, H] of input's dtype, weights [M, K] or None), views of which the first T
        rows are valid: the unweighted float32 sum over the token's distinct destination ranks, in
        ascending rank, rounded once; 0 for a token that went nowhere. Weights are summed alike.

        Raises InvalidError (also when indices are not the last dispatch's), StateError when no
        dispatch came before, and what dispatch raises; on a GPU as late as dispatch does. On the
        host it is one C call: Ctrl-C takes effect when it returns, at the latest at the same
        deadline.
        """
        if routing is not None:
            raise UnsupportedError("routing handles are not in this release: routing=None")
        launch = (block_num, rdma_block_num, warp_per_block)
        handle, lease = self._leased()
        is_registered = self._reads_registered(use_external_inp_buf)
        if not self._lock.acquire(blocking=False):
            raise StateError(_BUSY)
        try:
            arguments, results = self._arguments, self._results
            buffer = raw.mori_ep_combine_buffer(handle) if is_registered else None
            tokens = arguments.combine(
                input, weights, indices, launch, buffer, results.received, stream
            )
            raw.mori_ep_combine(handle, arguments.combine_struct, results.combine_struct)
            found = results.combined(lease, tokens)
            if self._lease is None:
                results.forget()
            return found
        finally:
            self._lock.release()

    def _reads_registered(self, use_external_inp_buf: int) -> bool:
        if use_external_inp_buf not in (-1, 0, 1):
            raise InvalidError(
                f"use_external_inp_buf is {use_external_inp_buf!r}, expected -1, 0 or 1"
            )
        if use_external_inp_buf == -1:
            return not self._config.use_external_inp_buf
        return use_external_inp_buf == 0

    def combine_send(
        self,
        input: Array,
        weights: Array | None,
        indices: Array,
        block_num: int = -1,
        rdma_block_num: int = -1,
        warp_per_block: int = -1,
        use_external_inp_buf: int = -1,
        call_reset: bool = False,
        *,
        stream: Any = None,
    ) -> CombineResult:
        """First half of a combine; arguments and results as of `combine`.

        The results may be read after combine_recv. The whole exchange happens here.
        """
        result = self.combine(
            input,
            weights,
            indices,
            block_num,
            rdma_block_num,
            warp_per_block,
            use_external_inp_buf,
            call_reset,
            stream=stream,
        )
        self._pending = "combine"
        return result

    def combine_recv(
        self, block_num: int = -1, rdma_block_num: int = -1, warp_per_block: int = -1
    ) -> None:
        """Second half: completes the last combine_send; StateError when there is none."""
        self._receive("combine")

    def _receive(self, what: str) -> None:
        raw.mori_ep_check(self._live())
        if self._pending != what:
            raise StateError(f"{what}_recv without a {what}_send before it")
        self._pending = None

    # Beside the two

    def reset(self) -> None:
        """Forgets the last dispatch. Never needed between iterations; MORI's code calls it."""
        raw.mori_ep_reset(self._live())
        self._results.forget_dispatch()
        self._pending = None

    def check(self) -> None:
        """Raises the fault of an earlier call that has surfaced only now, if there is one."""
        raw.mori_ep_check(self._live())

    def get_dispatch_src_token_pos(self) -> Array:
        """int32 [receive count]: where each received row came from; see decode_send_flat_idx.

        Of the kind of the last dispatch's results; a numpy array on a GPU without torch. Waits for
        the dispatch, but not for one that a graph replays. StateError before a dispatch.
        """
        handle, last = self._live(), self._results.last
        count = raw.mori_ep_src_token_positions(handle, 0, 0)
        positions = np.empty(count, np.int32)
        raw.mori_ep_src_token_positions(handle, NUMPY.address(positions), count)
        if last is None:
            return positions
        return self.context.kinds.results_of(last.framework).from_host(positions)

    def decode_send_flat_idx(self, flat_idx: Any) -> tuple[Any, Any]:
        """(source rank, source token) of a position; element-wise for arrays and tensors."""
        per_rank = self._config.max_num_tokens_to_send
        return flat_idx // per_rank, flat_idx % per_rank

    def get_registered_combine_input_buffer(self, dtype: DType, hidden_dim: int = -1) -> Array:
        """The symmetric buffer [R, hidden_dim] that combine reads without a copy.

        dtype: on the host a torch dtype gives a tensor, a numpy one an array; None: that of the
        last dispatch, else the config's data_type. Contents are the caller's between a combine and
        the next, on the stream. With use_external_inp_buf=True in the config the first call is
        collective.
        """
        handle, lease = self._leased()
        arguments = self._arguments
        framework, kind = self._registered_kind(dtype)
        hidden = self._config.hidden_dim if hidden_dim == -1 else number(hidden_dim, "hidden_dim")
        if hidden == 0:
            raise InvalidError("hidden_dim is 0, expected -1 or at least 1")
        arguments.token_type(framework, kind, "dtype")
        address, size = raw.mori_ep_combine_buffer(handle)
        shape = (self._config.max_num_tokens_to_recv, hidden)
        needed = size_bytes_of(shape, framework, kind)
        if needed > size:
            raise InvalidError(
                f"{list(shape)} of {framework.dtype_name(kind)} takes {needed} bytes, the "
                f"registered buffer has {size}"
            )
        return self._results.registered(lease, address, framework, kind, shape)

    def _registered_kind(self, dtype: DType) -> tuple[Framework, DType]:
        """Of a view of the registered buffer; dtype None: as tokens are."""
        last, declared, kinds = self._results.last, self._arguments.declared, self.context.kinds
        if dtype is None and last is not None:
            return self._arguments.result_kind(last.framework, last.dtype)
        if dtype is None:
            dtype = self._config.data_type
            if dtype is None:
                raise InvalidError("dtype is None, and neither config nor a dispatch named one")
        if isinstance(dtype, str) and dtype == declared and kinds.place.is_host:
            # numpy has no such type by itself: its bits.
            dtype = {1: "uint8", 2: "uint16", 4: "float32"}[TOKEN_TYPES[dtype][1]]
        return kinds.of_dtype(dtype)

    @property
    def local_expert_count(self) -> Array | None:
        """int32 [E]: received (token, slot) pairs for each own expert, as of the last dispatch
        with call_local_expert_count=True; None before one."""
        return self._results.local_expert_count

    def max_num_tokens_to_send_per_rank(self) -> int:
        """M."""
        return self._config.max_num_tokens_to_send_per_rank

    def max_num_tokens_to_send(self) -> int:
        """W * M."""
        return self._config.max_num_tokens_to_send

    def max_num_tokens_to_recv_per_rank(self) -> int:
        """Most tokens taken from one rank."""
        return self._config.max_num_tokens_to_recv_per_rank

    def max_num_tokens_to_recv(self) -> int:
        """R, the rows of dispatch's outputs."""
        return self._config.max_num_tokens_to_recv

    def get_launch_config(
        self,
        is_dispatch: bool = True,
        block_num: int = -1,
        rdma_block_num: int = -1,
        warp_per_block: int = -1,
    ) -> tuple[int, int, int]:
        """(block_num, rdma_block_num, warp_per_block) that a call with these requests asks for.

        The same for dispatch and combine; what was resident in the end does not change results.
        """
        config = self._config
        return (
            config.block_num if block_num == -1 else block_num,
            config.rdma_block_num if rdma_block_num == -1 else rdma_block_num,
            config.warp_num_per_block if warp_per_block == -1 else warp_per_block,
        )
