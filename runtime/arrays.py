"""`Arrays`: the few things the executor does with memory, for numpy and for torch.

Every array is one-dimensional and contiguous; `array[a:b]` is a view in both libraries.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np

from latecomer.schedules.errors import InputError

OPS: Final = ("sum", "avg", "min", "max", "prod")
"""Reductions. `avg` is the sum divided by the number of ranks at the end, for floating types."""


class Arrays(Protocol):
    """What differs between the libraries."""

    def flat(self, array: Any, what: str) -> Any:
        """`array` as a view of one dimension. Raises `InputError` where that needs a copy."""

    def empty(self, count: int, like: Any) -> Any:
        """`count` elements of the type and device of `like`."""

    def number(self, value: int) -> Any:
        """One int64 that can be sent."""

    def reduce(self, op: str, a: Any, b: Any, out: Any) -> None:
        """`out` = `a` (op) `b`, element by element; `out` may be `a`."""

    def copy(self, src: Any, out: Any) -> None:
        """`out` = `src`."""

    def divide(self, array: Any, by: int) -> None:
        """`array` /= `by`."""

    def dtype(self, array: Any) -> str:
        """The name of the element type."""

    def floating(self, array: Any) -> bool:
        """The type has fractions: `avg` makes sense."""

    def same_memory(self, a: Any, b: Any) -> bool:
        """Both start at the same address."""

    def overlap(self, a: Any, b: Any) -> bool:
        """They have bytes in common."""

    def try_out(self, op: str, source: Any, target: Any) -> None:
        """Raises `InputError` where elements of `source` cannot be reduced with `op`, or `target` not be written."""


class NumpyArrays:
    """numpy, and ml_dtypes for the types that numpy lacks (bfloat16)."""

    _UFUNC: Final = {"sum": np.add, "avg": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}

    def flat(self, array: Any, what: str) -> Any:
        """See `Arrays`."""
        if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
            raise InputError(f"{what} must be a contiguous numpy array; np.ascontiguousarray makes one")
        if array.dtype.hasobject:
            raise InputError(f"{what} holds Python objects ({array.dtype}); only numbers can be sent")
        return array.reshape(-1)

    def empty(self, count: int, like: Any) -> Any:
        """See `Arrays`."""
        return np.empty(count, dtype=like.dtype)

    def number(self, value: int) -> Any:
        """See `Arrays`."""
        return np.array([value], dtype=np.int64)

    def reduce(self, op: str, a: Any, b: Any, out: Any) -> None:
        """See `Arrays`."""
        self._UFUNC[op](a, b, out=out)

    def copy(self, src: Any, out: Any) -> None:
        """See `Arrays`."""
        out[:] = src

    def divide(self, array: Any, by: int) -> None:
        """See `Arrays`."""
        np.divide(array, np.asarray(by, dtype=array.dtype), out=array)

    def dtype(self, array: Any) -> str:
        """See `Arrays`."""
        return str(array.dtype)

    def floating(self, array: Any) -> bool:
        """See `Arrays`."""
        # ml_dtypes' types are of kind V, and floating all the same.
        return array.dtype.kind in "fc" or "float" in array.dtype.name

    def same_memory(self, a: Any, b: Any) -> bool:
        """See `Arrays`."""
        return bool(a.ctypes.data == b.ctypes.data)

    def overlap(self, a: Any, b: Any) -> bool:
        """See `Arrays`."""
        return bool(np.may_share_memory(a, b))

    def try_out(self, op: str, source: Any, target: Any) -> None:
        """See `Arrays`."""
        if not target.flags.writeable:
            raise InputError("the result's array is read-only")
        one = np.zeros(1, source.dtype)
        try:
            self.reduce(op, one, one, one)
        except TypeError as error:
            raise InputError(f"there is no {op} of {self.dtype(source)}") from error


class TorchArrays:
    """torch tensors of any device and dtype that torch can add."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._tried: set[tuple[str, Any]] = set()
        self._function: dict[str, Any] = {
            "sum": torch.add, "avg": torch.add, "min": torch.minimum, "max": torch.maximum, "prod": torch.mul,
        }  # fmt: skip

    def flat(self, array: Any, what: str) -> Any:
        """See `Arrays`."""
        if not isinstance(array, self._torch.Tensor) or not array.is_contiguous():
            raise InputError(f"{what} must be a contiguous tensor; .contiguous() makes one")
        if array.is_conj() or array.is_neg():
            raise InputError(f"{what} is a view that conjugates or negates; .resolve_conj().resolve_neg() makes a copy")
        return array.detach().view(-1)

    def empty(self, count: int, like: Any) -> Any:
        """See `Arrays`."""
        return self._torch.empty(count, dtype=like.dtype, device=like.device)

    def number(self, value: int) -> Any:
        """See `Arrays`."""
        return self._torch.tensor([value], dtype=self._torch.int64)

    def reduce(self, op: str, a: Any, b: Any, out: Any) -> None:
        """See `Arrays`."""
        self._function[op](a, b, out=out)

    def copy(self, src: Any, out: Any) -> None:
        """See `Arrays`."""
        out.copy_(src)

    def divide(self, array: Any, by: int) -> None:
        """See `Arrays`."""
        array.div_(by)

    def dtype(self, array: Any) -> str:
        """See `Arrays`."""
        return str(array.dtype).removeprefix("torch.")

    def floating(self, array: Any) -> bool:
        """See `Arrays`."""
        return bool(array.dtype.is_floating_point or array.dtype.is_complex)

    def same_memory(self, a: Any, b: Any) -> bool:
        """See `Arrays`."""
        return bool(a.data_ptr() == b.data_ptr())

    def overlap(self, a: Any, b: Any) -> bool:
        """See `Arrays`."""
        first, second = a.data_ptr(), b.data_ptr()
        return bool(first < second + b.numel() * b.element_size() and second < first + a.numel() * a.element_size())

    def try_out(self, op: str, source: Any, target: Any) -> None:
        """See `Arrays`."""
        if (op, source.dtype) in self._tried:
            return
        one = self._torch.zeros(1, dtype=source.dtype, device=source.device)
        try:
            self.reduce(op, one, one, one)
        except (RuntimeError, TypeError) as error:
            raise InputError(f"there is no {op} of {self.dtype(source)}") from error
        self._tried.add((op, source.dtype))
