"""EpDispatchCombineOp: checks what the caller passes, calls C, and views what comes back.

The C structs of both calls are made once and refilled, and the views of the operator's buffers
are kept as long as the buffers stay where they are, so that a call makes few Python objects.
Letters as in mori/ops/_config.py; T = tokens of a call on this rank. Read mori/ep.h for what a
call blocks on and fails with.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from dataclasses import dataclass
from typing import Any

from mori._arrays import (
    NUMPY,
    Array,
    DType,
    Framework,
    framework_of_dtype,
    required_framework_of,
    size_bytes_of,
)
from mori._ffi import constant
from mori._raw import CData, address_of, memory, new, number, typed_pointer
from mori._raw import ep as raw
from mori.errors import InvalidError, StateError, UnsupportedError
from mori.ops._config import TOKEN_TYPES, EpDispatchCombineConfig, token_type_name
from mori.shmem._context import Context, Lease
from mori.shmem._default import current_context

_INPUT_EXTERNAL = constant("MORI_EP_INPUT_EXTERNAL")
_INPUT_REGISTERED = constant("MORI_EP_INPUT_REGISTERED")
_UNKNOWN_COUNT = (1 << 64) - 1
_NULL = {kind: typed_pointer(kind, 0) for kind in ("char", "float", "int32_t")}
# An empty matrix may have no address, but C must see that weights or scales travel on this rank
# too: NULL says that none do.
_NO_ROWS = new("mori_ep_memory")
_EMPTY = {kind: typed_pointer(kind, address_of(_NO_ROWS)) for kind in _NULL}

DispatchResult = tuple[Array, Array | None, Array | None, Array, Array]
CombineResult = tuple[Array, Array | None]


@dataclass(frozen=True)
class OpMemory:
    """Bytes from each PE's symmetric heap, bytes of ordinary memory, and R."""

    symmetric_bytes: int
    private_bytes: int
    recv_token_capacity: int


def _null(pointer: CData) -> bool:
    return not pointer


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
        handle = raw.mori_ep_create(chosen.handle(), **config.c_fields())
        self._lease: Lease | None = Lease(raw.mori_ep_destroy, handle, chosen.lease())
        self._handle = handle
        self._lock = threading.Lock()
        self._declared = None if config.data_type is None else token_type_name(config.data_type)
        self._token_types: dict[DType, tuple[int, int]] = {}
        self._capacity = config.max_num_tokens_to_recv
        self._dispatch_args = new("mori_ep_dispatch_args")
        self._dispatch_result = new("mori_ep_dispatch_result")
        self._combine_args = new("mori_ep_combine_args")
        self._combine_result = new("mori_ep_combine_result")
        self._views: dict[str, tuple[CData, Any, DType, tuple[int, ...], Array]] = {}
        self._kind: Framework = NUMPY
        self._token_dtype: DType = None
        self._pending: str | None = None
        self._local_expert_count: Array | None = None
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
        self._forget_views()

    def _forget_views(self) -> None:
        self._views.clear()
        self._local_expert_count = None

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

        Returns (out [R, H], weights [R, K] or None, scales [R, S] or None, indices [R, K],
        count [1] int32): views of the operator's buffers, which the next call reuses; only the
        first `count` rows are specified. Rows are in order of (source rank, source token).

        Raises InvalidError (wrong shape, dtype, stride, device, T above M, expert id out of
        range), RecvOverflowError (on all ranks; nothing was written and the operator is usable),
        MismatchError (ranks differ in dtype or H), WaitTimeoutError, PeerDeadError, AbortedError,
        StateError.

        The exchange is one C call, so Ctrl-C takes effect when it returns: at the latest at its
        deadline, timeout_s of the config, else wait_timeout_s of the context. Choose a shorter
        one there if 300 s is too long; abort() of the context in another thread ends it at once.
        """
        if routing is not None or return_routing:
            raise UnsupportedError("routing handles are not in this release: routing=None")
        handle, lease = self._leased()
        config, args = self._config, self._dispatch_args
        framework = required_framework_of(input, "input")
        tokens, hidden, code, _ = self._tokens(framework, input, "input")
        if tokens > config.max_num_inp_token_per_rank:
            raise InvalidError(
                f"input has {tokens} tokens, max_num_inp_token_per_rank is "
                f"{config.max_num_inp_token_per_rank}"
            )
        experts = config.num_experts_per_token
        with _Exclusive(self._lock):
            args.input = framework.pointer("char", input) if tokens else _EMPTY["char"]
            args.indices = _table(indices, "indices", tokens, experts, "int32_t")
            args.weights = (
                _NULL["float"]
                if weights is None
                else _table(weights, "weights", tokens, experts, "float")
            )
            args.scales = self._scales(scales, tokens)
            args.token_count = tokens
            args.hidden_dim = hidden
            args.dtype = code
            args.count_local_experts = 1 if call_local_expert_count else 0
            _set_launch(args, block_num, rdma_block_num, warp_per_block)
            # The call writes its results only when it succeeds.
            self._dispatch_result.recv_token_count = _UNKNOWN_COUNT
            raw.mori_ep_dispatch(handle, args, self._dispatch_result)
            self._kind, self._token_dtype = framework, input.dtype
            return self._dispatch_views(lease, framework, input.dtype, hidden, scales)

    def _dispatch_views(
        self, lease: Lease, framework: Framework, dtype: DType, hidden: int, scales: Array | None
    ) -> DispatchResult:
        result, rows, config = self._dispatch_result, self._capacity, self._config
        experts = config.num_experts_per_token
        view = functools.partial(self._view, lease)
        if result.local_expert_count:
            self._local_expert_count = view(
                "counts",
                result.local_expert_count,
                framework,
                framework.int32,
                (config.num_experts_per_rank,),
            )
            if self._lease is None:
                self._forget_views()
        return (
            view("out", result.out, framework, dtype, (rows, hidden)),
            None
            if _null(result.weights)
            else view("weights", result.weights, framework, framework.float32, (rows, experts)),
            None
            if _null(result.scales) or scales is None
            else self._scales_view(lease, result.scales, scales, rows),
            view("indices", result.indices, framework, framework.int32, (rows, experts)),
            view("count", result.recv_count, framework, framework.int32, (1,)),
        )

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
    ) -> DispatchResult:
        """First half of a dispatch; arguments and results as of `dispatch`.

        The results may be read after dispatch_recv. The host backend is synchronous: the whole
        exchange happens here.
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

        Returns (out [M, H] of input's dtype, weights [M, K] or None), views of which the first T
        rows are valid: the unweighted float32 sum over the token's distinct destination ranks, in
        ascending rank, rounded once; 0 for a token that went nowhere. Weights are summed alike.

        Raises InvalidError (also when indices are not the last dispatch's), StateError when no
        dispatch came before, and what dispatch raises. Like dispatch it is one C call: Ctrl-C
        takes effect when it returns, at the latest at the same deadline.
        """
        if routing is not None:
            raise UnsupportedError("routing handles are not in this release: routing=None")
        handle, lease = self._leased()
        config, args = self._config, self._combine_args
        framework = required_framework_of(input, "input")
        rows, hidden, code, itemsize = self._tokens(framework, input, "input")
        experts = config.num_experts_per_token
        registered = self._reads_registered(use_external_inp_buf)
        with _Exclusive(self._lock):
            tokens = _rows_of(indices, "indices")
            if tokens > config.max_num_inp_token_per_rank:
                raise InvalidError(
                    f"indices has {tokens} rows, max_num_inp_token_per_rank is "
                    f"{config.max_num_inp_token_per_rank}"
                )
            if registered:
                address, size = raw.mori_ep_combine_buffer(handle)
                args.input = typed_pointer("char", address)
                rows = min(size // (hidden * itemsize), self._capacity)
            else:
                args.input = framework.pointer("char", input) if rows else _EMPTY["char"]
            args.indices = _table(indices, "indices", tokens, experts, "int32_t")
            args.weights, rows = self._combine_weights(weights, rows)
            args.token_count = tokens
            args.input_row_count = rows
            args.hidden_dim = hidden
            args.dtype = code
            args.input_mode = _INPUT_REGISTERED if registered else _INPUT_EXTERNAL
            _set_launch(args, block_num, rdma_block_num, warp_per_block)
            result = self._combine_result
            raw.mori_ep_combine(handle, args, result)
            shape = (config.max_num_inp_token_per_rank, hidden)
            out = self._view(lease, "combined", result.out, framework, input.dtype, shape)
            if _null(result.weights):
                return out, None
            shape = (config.max_num_inp_token_per_rank, experts)
            kind = framework.float32
            return out, self._view(lease, "sums", result.weights, framework, kind, shape)

    def _reads_registered(self, use_external_inp_buf: int) -> bool:
        if use_external_inp_buf not in (-1, 0, 1):
            raise InvalidError(
                f"use_external_inp_buf is {use_external_inp_buf!r}, expected -1, 0 or 1"
            )
        if use_external_inp_buf == -1:
            return not self._config.use_external_inp_buf
        return use_external_inp_buf == 0

    def _combine_weights(self, weights: Array | None, rows: int) -> tuple[CData, int]:
        """Start of the weights, and the number of rows that both they and the input have, which
        the library holds against the receive count."""
        if weights is None:
            return _NULL["float"], rows
        given = _rows_of(weights, "weights")
        received = self._dispatch_result.recv_token_count
        if received != _UNKNOWN_COUNT and given < min(rows, received):
            raise InvalidError(
                f"weights has {given} rows, {min(rows, received)} tokens were received"
            )
        experts = self._config.num_experts_per_token
        return _table(weights, "weights", given, experts, "float"), min(rows, given)

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
    ) -> CombineResult:
        """First half of a combine; arguments and results as of `combine`.

        The results may be read after combine_recv. The host backend is synchronous: the whole
        exchange happens here.
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
        self._dispatch_result.recv_token_count = _UNKNOWN_COUNT
        self._pending = None

    def check(self) -> None:
        """Raises the fault of an earlier call that has surfaced only now, if there is one."""
        raw.mori_ep_check(self._live())

    def get_dispatch_src_token_pos(self) -> Array:
        """int32 [receive count]: where each received row came from; see decode_send_flat_idx.

        Of the kind of the last dispatch's input. StateError before a dispatch.
        """
        handle, framework = self._live(), self._kind
        count = raw.mori_ep_src_token_positions(handle, 0, 0)
        positions = framework.empty(framework.int32, (count,))
        raw.mori_ep_src_token_positions(handle, framework.address(positions), count)
        return positions

    def decode_send_flat_idx(self, flat_idx: Any) -> tuple[Any, Any]:
        """(source rank, source token) of a position; element-wise for arrays and tensors."""
        per_rank = self._config.max_num_tokens_to_send
        return flat_idx // per_rank, flat_idx % per_rank

    def get_registered_combine_input_buffer(self, dtype: DType, hidden_dim: int = -1) -> Array:
        """The symmetric buffer [R, hidden_dim] that combine reads without a copy.

        dtype: a torch dtype gives a tensor, a numpy one an array; None: the config's data_type,
        else the last dispatch's. Contents are the caller's between a combine's return and the
        next. With use_external_inp_buf=True in the config the first call is collective.
        """
        handle, lease = self._leased()
        if dtype is None:
            dtype = self._config.data_type if self._token_dtype is None else self._token_dtype
            if dtype is None:
                raise InvalidError("dtype is None, and neither config nor a dispatch named one")
        if isinstance(dtype, str) and dtype == self._declared:
            dtype = {1: "uint8", 2: "uint16", 4: "float32"}[TOKEN_TYPES[dtype][1]]
        framework, kind = framework_of_dtype(dtype)
        hidden = self._config.hidden_dim if hidden_dim == -1 else number(hidden_dim, "hidden_dim")
        if hidden == 0:
            raise InvalidError("hidden_dim is 0, expected -1 or at least 1")
        self._token_type(framework, kind, "dtype")
        address, size = raw.mori_ep_combine_buffer(handle)
        shape = (self._capacity, hidden)
        needed = size_bytes_of(shape, framework, kind)
        if needed > size:
            raise InvalidError(
                f"{list(shape)} of {framework.dtype_name(kind)} takes {needed} bytes, the "
                f"registered buffer has {size}"
            )
        return self._view(
            lease, "registered", typed_pointer("char", address), framework, kind, shape
        )

    @property
    def local_expert_count(self) -> Array | None:
        """int32 [E]: received (token, slot) pairs for each own expert, as of the last dispatch
        with call_local_expert_count=True; None before one."""
        return self._local_expert_count

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

    # Arguments and views

    def _token_type(self, framework: Framework, dtype: DType, name: str) -> tuple[int, int]:
        """C's value of an element type and its size; remembered by dtype."""
        known = self._token_types.get(dtype)
        if known is not None:
            return known
        kind = framework.dtype_name(dtype)
        if framework is NUMPY and self._declared is not None and kind in ("uint8", "uint16"):
            kind = self._declared
        entry = TOKEN_TYPES.get(kind)
        itemsize = framework.itemsize(dtype)
        if entry is None or entry[1] != itemsize:
            raise InvalidError(
                f"{name} has dtype {framework.dtype_name(dtype)}, expected one of "
                f"{', '.join(TOKEN_TYPES)}"
                + (f" (data_type is {self._declared})" if self._declared else "")
            )
        if itemsize > self._config.max_token_type_size:
            raise InvalidError(
                f"{name} has elements of {itemsize} bytes, max_token_type_size is "
                f"{self._config.max_token_type_size}"
            )
        self._token_types[dtype] = entry
        return entry

    def _tokens(self, framework: Framework, array: Array, name: str) -> tuple[int, int, int, int]:
        """Rows, H, C's element type and its size of a token matrix."""
        shape = array.shape
        if len(shape) != 2:
            raise InvalidError(f"{name} has shape {tuple(shape)}, expected [tokens, hidden]")
        rows, hidden = shape
        if not 1 <= hidden <= self._config.hidden_dim:
            raise InvalidError(
                f"{name} has {hidden} elements per token, expected 1 .. {self._config.hidden_dim} "
                "(hidden_dim)"
            )
        framework.refuse_unusable(array, name)
        code, itemsize = self._token_type(framework, array.dtype, name)
        return rows, hidden, code, itemsize

    def _scales(self, scales: Array | None, tokens: int) -> CData:
        if scales is None:
            return _NULL["char"]
        framework = required_framework_of(scales, "scales")
        expected, size = (tokens, self._config.scale_dim), self._config.scale_type_size
        if tuple(scales.shape) != expected:
            raise InvalidError(
                f"scales has shape {tuple(scales.shape)}, expected {expected} (scale_dim is "
                f"{self._config.scale_dim})"
            )
        if framework.itemsize(scales.dtype) != size:
            raise InvalidError(
                f"scales has elements of {framework.itemsize(scales.dtype)} bytes, "
                f"scale_type_size is {size}"
            )
        framework.refuse_unusable(scales, "scales")
        if self._config.scale_dim == 0:
            return _NULL["char"]
        return framework.pointer("char", scales) if tokens else _EMPTY["char"]

    def _scales_view(self, lease: Lease, pointer: CData, scales: Array, rows: int) -> Array:
        framework = required_framework_of(scales, "scales")
        shape = (rows, self._config.scale_dim)
        return self._view(lease, "scales", pointer, framework, scales.dtype, shape)

    def _view(
        self,
        lease: Lease,
        name: str,
        pointer: CData,
        framework: Framework,
        dtype: DType,
        shape: tuple[int, ...],
    ) -> Array:
        """An array over one of the operator's buffers; the same one while nothing moved."""
        known = self._views.get(name)
        if (
            known is not None
            and known[0] == pointer
            and known[1] is framework
            and known[2] == dtype
            and known[3] == shape
        ):
            return framework.alias(known[4])
        size = size_bytes_of(shape, framework, dtype)
        array = framework.view(memory(address_of(pointer), size, lease), dtype, shape)
        self._views[name] = (pointer, framework, dtype, shape, array)
        if self._lease is None:  # closed meanwhile: what is kept would keep the buffers
            self._forget_views()
        return framework.alias(array)


class _Exclusive:
    """Refuses a second thread instead of letting it wait or mix its arguments in."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise StateError("another thread is in a call of this dispatch/combine operator")

    def __exit__(self, *_error: object) -> None:
        self._lock.release()


def _rows_of(array: Array, name: str) -> int:
    required_framework_of(array, name)
    shape = array.shape
    if len(shape) != 2:
        raise InvalidError(f"{name} has shape {tuple(shape)}, expected a matrix")
    return int(shape[0])


def _table(array: Array, name: str, rows: int, columns: int, kind: str) -> CData:
    """Start of a dense [rows, columns] matrix of int32 or float32."""
    framework = required_framework_of(array, name)
    if tuple(array.shape) != (rows, columns):
        raise InvalidError(
            f"{name} has shape {tuple(array.shape)}, expected {(rows, columns)} (tokens, "
            "num_experts_per_token)"
        )
    expected = framework.int32 if kind == "int32_t" else framework.float32
    if array.dtype != expected:
        raise InvalidError(
            f"{name} has dtype {framework.dtype_name(array.dtype)}, expected "
            f"{framework.dtype_name(expected)}"
        )
    framework.refuse_unusable(array, name)
    return framework.pointer(kind, array) if rows else _EMPTY[kind]


def _set_launch(args: CData, block_num: int, rdma_block_num: int, warp_per_block: int) -> None:
    """Launch requests; -1, MORI's default, is 0 in C."""
    for field, name, value in (
        ("block_count", "block_num", block_num),
        ("rdma_block_count", "rdma_block_num", rdma_block_num),
        ("warp_per_block_count", "warp_per_block", warp_per_block),
    ):
        if value != -1:
            value = number(value, name, "int32_t")
            if value < 0:
                raise InvalidError(f"{name} is {value}, expected -1 or at least 0")
        else:
            value = 0
        setattr(args, field, value)
