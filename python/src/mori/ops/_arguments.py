"""Arguments of dispatch and combine: checked, and stored in C structs that are made once.

Whatever can be checked without waiting for the device is checked here, in the caller's terms. The
usual case (arrays of a type seen before, all as it should be) takes few steps; the first thing that
is not so leads to a function that only says what is wrong. Letters as in mori/ops/_config.py;
T = tokens of a call on this rank.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mori._arrays import Array, DType, Framework, Kinds, stream_handle
from mori._ffi import constant
from mori._raw import CData, address_of, new, number, word_of, words_of
from mori.errors import InvalidError
from mori.ops._config import TOKEN_TYPES, EpDispatchCombineConfig, token_type_name

_EXTERNAL = constant("MORI_EP_INPUT_EXTERNAL")
_REGISTERED = constant("MORI_EP_INPUT_REGISTERED")
UNKNOWN_COUNT = (1 << 64) - 1

_NAME = "mori_ep_dispatch_args"
_IN, _WEIGHTS, _SCALES, _INDICES, _TOKENS, _HIDDEN, _STREAM = (
    word_of(_NAME, field)
    for field in (
        *("input", "weights", "scales", "indices", "token_count", "hidden_dim", "stream"),
    )
)
_NAME = "mori_ep_combine_args"
_C_IN, _C_WEIGHTS, _C_INDICES, _C_TOKENS, _C_ROWS, _C_HIDDEN, _C_STREAM = (
    word_of(_NAME, field)
    for field in (
        *("input", "weights", "indices", "token_count", "input_row_count", "hidden_dim"),
        "stream",
    )
)

# An empty matrix may have no address, but C must see that weights or scales travel on this rank
# too: NULL says that none do.
_NO_ROWS = new("mori_ep_memory")
_EMPTY = address_of(_NO_ROWS)


class Tokens(NamedTuple):
    """What a call's token matrix is like: results are made alike."""

    framework: Framework
    dtype: DType
    hidden: int
    scales: tuple[Framework, DType] | None


class Arguments:
    """The structs of an operator's calls, and what fills them."""

    def __init__(self, config: EpDispatchCombineConfig, kinds: Kinds) -> None:
        self.config, self.kinds = config, kinds
        self.dispatch_struct = new("mori_ep_dispatch_args")
        self.combine_struct = new("mori_ep_combine_args")
        self._dispatch_words = words_of(self.dispatch_struct)
        self._combine_words = words_of(self.combine_struct)
        self._launches: dict[CData, tuple[int, int, int]] = {}
        self.declared = None if config.data_type is None else token_type_name(config.data_type)
        self._token_types: dict[DType, tuple[int, int]] = {}
        self._scale_types: set[DType] = set()
        self._most_tokens = config.max_num_inp_token_per_rank
        self._experts = config.num_experts_per_token

    # The two calls

    def dispatch(
        self,
        input: Array,
        weights: Array | None,
        scales: Array | None,
        indices: Array,
        launch: tuple[int, int, int],
        count_local_experts: bool,
        stream: Any,
    ) -> Tokens:
        """Fills dispatch_struct."""
        words, struct = self._dispatch_words, self.dispatch_struct
        handle = None if stream is None else stream_handle(stream)
        framework = self.kinds.by_type.get(type(input))
        if framework is None:
            framework, input = self.kinds.of(input, "input", handle or 0)
        if handle is None:
            handle = self._stream_of(framework, input)
        address, tokens, hidden, (code, _) = self._matrix(framework, input, "input")
        if tokens > self._most_tokens:
            raise InvalidError(
                f"input has {tokens} tokens, max_num_inp_token_per_rank is {self._most_tokens}"
            )
        words[_IN] = address if tokens else _EMPTY
        words[_INDICES] = self._table(indices, "indices", tokens, handle, True)
        words[_WEIGHTS] = (
            0 if weights is None else self._table(weights, "weights", tokens, handle, False)
        )
        given = None
        if scales is None:
            words[_SCALES] = 0
        else:
            words[_SCALES], given = self._scales(scales, tokens, handle)
        words[_TOKENS], words[_HIDDEN], words[_STREAM] = tokens, hidden, handle
        struct.dtype = code
        struct.count_local_experts = 1 if count_local_experts else 0
        if self._launches.get(struct) != launch:
            self._set_launch(struct, launch)
        return Tokens(framework, input.dtype, hidden, given)

    def combine(
        self,
        input: Array,
        weights: Array | None,
        indices: Array,
        launch: tuple[int, int, int],
        registered: tuple[int, int] | None,
        received: int,
        stream: Any,
    ) -> Tokens:
        """Fills combine_struct. registered: address and size of the buffer to read instead of
        `input`; received: the receive count if known, else UNKNOWN_COUNT."""
        words, struct = self._combine_words, self.combine_struct
        handle = None if stream is None else stream_handle(stream)
        framework = self.kinds.by_type.get(type(input))
        if framework is None:
            framework, input = self.kinds.of(input, "input", handle or 0)
        if handle is None:
            handle = self._stream_of(framework, input)
        address, rows, hidden, (code, itemsize) = self._matrix(framework, input, "input")
        indices, tokens = self._own_rows(indices, handle)
        if registered is not None:
            words[_C_IN], size = registered
            rows = min(size // (hidden * itemsize), self.config.max_num_tokens_to_recv)
        else:
            words[_C_IN] = address if rows else _EMPTY
        words[_C_INDICES] = self._table(indices, "indices", tokens, handle, True)
        if weights is None:
            words[_C_WEIGHTS] = 0
        else:
            words[_C_WEIGHTS], rows = self._combine_weights(weights, rows, received, handle)
        words[_C_TOKENS], words[_C_ROWS], words[_C_HIDDEN] = tokens, rows, hidden
        words[_C_STREAM] = handle
        struct.dtype = code
        struct.input_mode = _EXTERNAL if registered is None else _REGISTERED
        if self._launches.get(struct) != launch:
            self._set_launch(struct, launch)
        return Tokens(framework, input.dtype, hidden, None)

    # Token matrices

    def _matrix(
        self, framework: Framework, array: Array, name: str
    ) -> tuple[int, int, int, tuple[int, int]]:
        """Address, rows, H, and element type (as token_type gives it) of a matrix of tokens."""
        shape = array.shape
        if len(shape) != 2:
            raise InvalidError(f"{name} has shape {tuple(shape)}, expected [tokens, hidden]")
        rows, hidden = shape
        if not 1 <= hidden <= self.config.hidden_dim:
            raise InvalidError(
                f"{name} has {hidden} elements per token, expected 1 .. {self.config.hidden_dim} "
                "(hidden_dim)"
            )
        address = framework.dense_address(array)
        if address < 0:
            framework.refuse_unusable(array, name)
        known = self._token_types.get(array.dtype)
        if known is None:
            known = self.token_type(framework, array.dtype, name)
        return address, rows, hidden, known

    def token_type(self, framework: Framework, dtype: DType, name: str) -> tuple[int, int]:
        """C's value of an element type and its size; remembered by dtype."""
        kind, itemsize = self.token_name(framework, dtype), framework.itemsize(dtype)
        entry = TOKEN_TYPES.get(kind)
        if entry is None or entry[1] != itemsize:
            raise InvalidError(
                f"{name} has dtype {framework.dtype_name(dtype)}, expected one of "
                f"{', '.join(TOKEN_TYPES)}"
                + (f" (data_type is {self.declared})" if self.declared else "")
            )
        if itemsize > self.config.max_token_type_size:
            raise InvalidError(
                f"{name} has elements of {itemsize} bytes, max_token_type_size is "
                f"{self.config.max_token_type_size}"
            )
        self.result_kind(framework, dtype)
        self._token_types[dtype] = entry
        return entry

    def result_kind(
        self, framework: Framework, dtype: DType, *, is_token: bool = True
    ) -> tuple[Framework, DType]:
        """Framework and element type of results for arrays of these; InvalidError when the
        library of the results has no such type."""
        made = self.kinds.results_of(framework)
        if made is framework and made is not self.kinds.foreign:
            return made, dtype
        name = self.token_name(framework, dtype) if is_token else framework.dtype_name(dtype)
        return made, made.dtype_named(name)

    def token_name(self, framework: Framework, dtype: DType) -> str:
        """Name of an element type; unsigned integers hold the bits of the declared one, in
        libraries that have no such type."""
        kind = framework.dtype_name(dtype)
        holds_bits = kind in ("uint8", "uint16") and framework.name != "torch"
        return self.declared if holds_bits and self.declared is not None else kind

    # Tables of [tokens, K], scales, launch requests

    def _stream_of(self, framework: Framework, array: Array) -> int:
        """The stream that the array's library works on."""
        said = getattr(array, "stream", None) if framework is self.kinds.foreign else None
        return framework.current_stream() if said is None else said

    def _table(self, array: Array, name: str, rows: int, stream: int, is_ids: bool) -> int:
        """Address of a dense [rows, K] matrix of int32 or float32."""
        framework = self.kinds.by_type.get(type(array))
        if framework is None:
            framework, array = self.kinds.of(array, name, stream)
        shape, dtype = (rows, self._experts), framework.int32 if is_ids else framework.float32
        if array.shape == shape and array.dtype == dtype:
            address = framework.dense_address(array)
            if address >= 0:
                return address if rows else _EMPTY
        refuse_table(framework, array, name, shape, dtype)
        return 0

    def _own_rows(self, indices: Array, stream: int) -> tuple[Array, int]:
        """This rank's routing as an array, and its number of tokens."""
        if type(indices) not in self.kinds.by_type:
            indices = self.kinds.of(indices, "indices", stream)[1]
        tokens = _rows_of(indices, "indices")
        if tokens > self._most_tokens:
            raise InvalidError(
                f"indices has {tokens} rows, max_num_inp_token_per_rank is {self._most_tokens}"
            )
        return indices, tokens

    def _combine_weights(
        self, weights: Array, rows: int, received: int, stream: int
    ) -> tuple[int, int]:
        """Address of the weights, and the number of rows that both they and the input have, which
        the library holds against the receive count."""
        if type(weights) not in self.kinds.by_type:
            weights = self.kinds.of(weights, "weights", stream)[1]
        given = _rows_of(weights, "weights")
        if received != UNKNOWN_COUNT and given < min(rows, received):
            raise InvalidError(
                f"weights has {given} rows, {min(rows, received)} tokens were received"
            )
        return self._table(weights, "weights", given, stream, False), min(rows, given)

    def _scales(
        self, scales: Array, tokens: int, stream: int
    ) -> tuple[int, tuple[Framework, DType]]:
        framework = self.kinds.by_type.get(type(scales))
        if framework is None:
            framework, scales = self.kinds.of(scales, "scales", stream)
        expected, size = (tokens, self.config.scale_dim), self.config.scale_type_size
        if tuple(scales.shape) != expected:
            raise InvalidError(
                f"scales has shape {tuple(scales.shape)}, expected {expected} (scale_dim is "
                f"{self.config.scale_dim})"
            )
        dtype = scales.dtype
        if framework.itemsize(dtype) != size:
            raise InvalidError(
                f"scales has elements of {framework.itemsize(dtype)} bytes, scale_type_size is "
                f"{size}"
            )
        if dtype not in self._scale_types:
            self.result_kind(framework, dtype, is_token=False)
            self._scale_types.add(dtype)
        address = framework.dense_address(scales)
        if address < 0:
            framework.refuse_unusable(scales, "scales")
        if self.config.scale_dim == 0:
            return 0, (framework, dtype)
        return address if tokens else _EMPTY, (framework, dtype)

    def _set_launch(self, struct: CData, launch: tuple[int, int, int]) -> None:
        """Launch requests; -1, MORI's default, is 0 in C."""
        fields = ("block_count", "rdma_block_count", "warp_per_block_count")
        names = ("block_num", "rdma_block_num", "warp_per_block")
        self._launches.pop(struct, None)
        for field, name, given in zip(fields, names, launch, strict=True):
            value = number(given, name, "int32_t")
            if value < -1:
                raise InvalidError(f"{name} is {value}, expected -1 or at least 0")
            setattr(struct, field, max(value, 0))
        self._launches[struct] = launch


def refuse_table(
    framework: Framework, array: Array, name: str, shape: tuple[int, int], dtype: DType
) -> None:
    """Says what is wrong with a matrix that should have this shape and element type."""
    if tuple(array.shape) != shape:
        raise InvalidError(
            f"{name} has shape {tuple(array.shape)}, expected {shape} (tokens, "
            "num_experts_per_token)"
        )
    if array.dtype != dtype:
        raise InvalidError(
            f"{name} has dtype {framework.dtype_name(array.dtype)}, expected "
            f"{framework.dtype_name(dtype)}"
        )
    framework.refuse_unusable(array, name)
    raise InvalidError(f"{name} cannot be used")


def _rows_of(array: Array, name: str) -> int:
    shape = array.shape
    if len(shape) != 2:
        raise InvalidError(f"{name} has shape {tuple(shape)}, expected a matrix")
    return int(shape[0])
