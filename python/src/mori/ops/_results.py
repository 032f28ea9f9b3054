"""Views of an operator's buffers: what dispatch and combine return.

The buffers stay where they are for as long as the operator lives, so an array over them is made
once for each element type and hidden size, and each call hands out an alias of it: what a caller
does to an alias (reshapes it, asks for gradients) stays with that caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mori._arrays import Array, DType, Framework, Kinds
from mori._raw import bytes_of, new, offset_of, word_of, words_of
from mori.ops._arguments import UNKNOWN_COUNT, Arguments, Tokens
from mori.ops._config import EpDispatchCombineConfig
from mori.shmem._lease import Lease

DispatchResult = tuple[Array, Array | None, Array | None, Array, Array]
CombineResult = tuple[Array, Array | None]

_NAME = "mori_ep_dispatch_result"
_POINTERS = ("out", "weights", "scales", "indices", "recv_count", "local_expert_count")
_AT = {field: word_of(_NAME, field) for field in _POINTERS}
_DISPATCHED = slice(offset_of(_NAME, "out"), offset_of(_NAME, "capacity_count"))
_NAME = "mori_ep_combine_result"
_C_OUT, _C_WEIGHTS = word_of(_NAME, "out"), word_of(_NAME, "weights")
_COMBINED = slice(offset_of(_NAME, "out"), offset_of(_NAME, "effective_block_count"))
# Views that are kept; more only if calls go through many element types and hidden sizes.
_MOST_VIEWS = 32


class Results:
    """The result structs of an operator's calls, and the views of what they point to."""

    def __init__(self, config: EpDispatchCombineConfig, kinds: Kinds, arguments: Arguments) -> None:
        self._config, self._kinds, self._arguments = config, kinds, arguments
        self.dispatch_struct = new("mori_ep_dispatch_result")
        self.combine_struct = new("mori_ep_combine_result")
        self._dispatch_words = words_of(self.dispatch_struct)
        self._dispatch_bytes = bytes_of(self.dispatch_struct)
        self._combine_words = words_of(self.combine_struct)
        self._combine_bytes = bytes_of(self.combine_struct)
        self._views: dict[Any, Any] = {}
        self.local_expert_count: Array | None = None
        self.last: Tokens | None = None  # of the last dispatch that succeeded
        self.forget_dispatch()

    def forget(self) -> None:
        """Lets go of all views, and with them of the buffers."""
        self._views.clear()
        self.local_expert_count = None

    def forget_dispatch(self) -> None:
        """The receive count is that of a call that succeeds."""
        self.dispatch_struct.recv_token_count = UNKNOWN_COUNT

    @property
    def received(self) -> int:
        """Receive count of the last dispatch, UNKNOWN_COUNT where only the device knows it."""
        return self.dispatch_struct.recv_token_count

    def dispatched(self, lease: Lease, tokens: Tokens) -> DispatchResult:
        """Views of what the last dispatch has received."""
        key = (tokens, self._dispatch_bytes[_DISPATCHED])
        known = self._views.get(key)
        if known is None:
            known = self._remembered(key, self._dispatch_views(lease, tokens))
        framework, alias_of_scales, (out, weights, scales, indices, count, experts) = known
        self.last = tokens
        alias = framework.alias
        if experts is not None:
            self.local_expert_count = alias(experts)
        return (
            alias(out),
            None if weights is None else alias(weights),
            None if scales is None else alias_of_scales(scales),
            alias(indices),
            alias(count),
        )

    def combined(self, lease: Lease, tokens: Tokens) -> CombineResult:
        """Views of what the last combine has summed."""
        key = (tokens, self._combine_bytes[_COMBINED])
        known = self._views.get(key)
        if known is None:
            known = self._remembered(key, self._combine_views(lease, tokens))
        framework, (out, weights) = known
        alias = framework.alias
        return alias(out), None if weights is None else alias(weights)

    def registered(
        self, lease: Lease, address: int, framework: Framework, dtype: DType, shape: tuple[int, int]
    ) -> Array:
        """A view of the registered combine input."""
        key = (framework, dtype, shape, address)
        known = self._views.get(key)
        if known is None:
            known = self._remembered(
                key, (framework, (framework.view(address, lease, dtype, shape),))
            )
        return framework.alias(known[1][0])

    def _remembered(self, key: Any, views: Any) -> Any:
        if len(self._views) >= _MOST_VIEWS:
            self._views.clear()
        self._views[key] = views
        return views

    def _dispatch_views(
        self, lease: Lease, tokens: Tokens
    ) -> tuple[Framework, Callable[[Array], Array], tuple[Array | None, ...]]:
        config, words = self._config, self._dispatch_words
        rows, experts = config.max_num_tokens_to_recv, config.num_experts_per_token
        made, dtype = self._arguments.result_kind(tokens.framework, tokens.dtype)

        def view(field: str, kind: DType, *shape: int) -> Array | None:
            address = words[_AT[field]]
            return made.view(address, lease, kind, shape) if address else None

        scales, alias_of_scales = None, made.alias
        if tokens.scales is not None and words[_AT["scales"]]:
            framework, kind = self._arguments.result_kind(*tokens.scales, is_token=False)
            shape, alias_of_scales = (rows, config.scale_dim), framework.alias
            scales = framework.view(words[_AT["scales"]], lease, kind, shape)
        return (
            made,
            alias_of_scales,
            (
                view("out", dtype, rows, tokens.hidden),
                view("weights", made.float32, rows, experts),
                scales,
                view("indices", made.int32, rows, experts),
                view("recv_count", made.int32, 1),
                view("local_expert_count", made.int32, config.num_experts_per_rank),
            ),
        )

    def _combine_views(
        self, lease: Lease, tokens: Tokens
    ) -> tuple[Framework, tuple[Array | None, ...]]:
        config, words = self._config, self._combine_words
        rows, experts = config.max_num_inp_token_per_rank, config.num_experts_per_token
        made, dtype = self._arguments.result_kind(tokens.framework, tokens.dtype)
        weights = words[_C_WEIGHTS]
        return made, (
            made.view(words[_C_OUT], lease, dtype, (rows, tokens.hidden)),
            made.view(weights, lease, made.float32, (rows, experts)) if weights else None,
        )
