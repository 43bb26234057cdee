# SPDX-License-Identifier: BSD-3-Clause
"""The C++ extension: openvc/attention.hpp with pointers and streams as integers. Private."""

import builtins
import enum
from collections.abc import Callable, Sequence
from typing import Any

version: str
MAX_THREADS: int
KEY_ORDERS: tuple[str, ...]
NUMERIC_OPTIONS: tuple[dict[str, Any], ...]
SMALLEST_SOFTMAX_SCALE: float
LARGEST_SOFTMAX_SCALE: float
SOFTMAX_SCALE_RANGE: str
BUDGETS: dict[str, dict[str, Any]]

class ElementType(enum.Enum):
    bfloat16 = ...
    float16 = ...
    float32 = ...

class DeviceType(enum.Enum):
    cpu = ...
    cuda = ...

class AttentionOptions:
    def __init__(
        self, causal: bool, softmax_scale: float | None, key_order: str, numerics: Any
    ) -> None: ...
    @property
    def causal(self) -> bool: ...
    @property
    def softmax_scale(self) -> float | None: ...
    @property
    def key_order(self) -> str: ...
    @property
    def numerics(self) -> dict[str, Any]: ...
    def with_keys(
        self, lengths: int, mask: int, mask_batch_stride: int, mask_key_stride: int
    ) -> AttentionOptions: ...
    def with_sequences(
        self,
        count: int,
        cu_seqlens_q: int,
        cu_seqlens_k: int,
        max_seqlen_q: int,
        max_seqlen_k: int,
    ) -> AttentionOptions: ...

class Tensor:
    @property
    def shape(self) -> list[int]: ...
    @property
    def array_shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> list[int]: ...
    @property
    def type(self) -> ElementType: ...
    @property
    def pointer(self) -> int: ...

class Array:
    @property
    def pointer(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def shape(self) -> list[int]: ...
    @property
    def strides(self) -> list[int]: ...

class HeadPlan:
    @property
    def extra_steps(self) -> int: ...
    @property
    def rotated(self) -> bool: ...
    @property
    def score_exponent(self) -> int: ...
    @property
    def predicted_score_error(self) -> float: ...

class Prepared:
    @property
    def query_shape(self) -> list[int]: ...
    @property
    def key_shape(self) -> list[int]: ...
    @property
    def plans(self) -> list[HeadPlan]: ...
    @property
    def repair_rows(self) -> int: ...
    @property
    def has_log_sum_exp(self) -> bool: ...
    @property
    def bytes(self) -> int: ...
    def sections(self) -> list[tuple[str, str, list[int], builtins.bytes]]: ...

def tensor_from_pointer(
    pointer: int,
    type: ElementType,
    device: DeviceType,
    device_index: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> Tensor: ...
def tensor_from_dlpack(name: str, capsule: Any, take: bool) -> Tensor: ...
def array_from_dlpack(name: str, capsule: Any, take: bool) -> Array: ...
def allocate(dtype: str, shape: Sequence[int]) -> Any: ...
def address(array: Any) -> int: ...
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    log_sum_exp: int,
    options: AttentionOptions,
    threads: int,
    stream: int,
    allocate: Callable[[int], Any] | None,
) -> None: ...
def prepare(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    repair_budget: float | None,
    options: AttentionOptions,
    with_log_sum_exp: bool,
    threads: int,
    stream: int,
    allocate: Callable[[int], Any] | None,
) -> Prepared: ...
def attention_prepared(
    prepared: Prepared,
    out: Tensor,
    log_sum_exp: int,
    threads: int,
    stream: int,
    record_use: Callable[[Any], None],
) -> None: ...
def exact_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: Sequence[int],
    out: int,
    log_sum_exp: int,
    options: AttentionOptions,
    threads: int,
) -> None: ...
def is_supported(
    q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions
) -> tuple[bool, str]: ...
def require_supported(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions) -> None: ...
def require_exact_supported(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions) -> None: ...
def check_sequences(
    cu_seqlens_q: Sequence[int],
    cu_seqlens_k: Sequence[int],
    max_seqlen_q: int,
    max_seqlen_k: int,
    queries: int,
    keys: int,
) -> None: ...
def info() -> dict[str, Any]: ...
