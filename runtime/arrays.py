"""`Arrays`: the few things the executor does with memory, for numpy and for torch.

Every array is one-dimensional and contiguous; `array[a:b]` is a view in both libraries.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np

from latecomer.schedules.errors import InputError

OPS: Final = ("sum", "avg", "min", "max", "prod")
"""Reductions. `avg` is the sum divided by the number of ranks at the end, for floating types."""
_NUMERIC: Final = "biufc"
"""numpy's kinds of numbers; those of ml_dtypes are V by kind, and numbers by name."""
_ML_DTYPES: Final = ("bfloat", "float", "int", "uint")


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

    def try_out(self, op: str | None, source: Any, target: Any) -> None:
        """Raises `InputError` where `target` cannot be written, or elements of this type not be reduced with `op`.

        `op` None: nothing is reduced.
        """


class NumpyArrays:
    """numpy, and ml_dtypes for the types that numpy lacks (bfloat16)."""

    _UFUNC: Final = {"sum": np.add, "avg": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}

    def flat(self, array: Any, what: str) -> Any:
        """See `Arrays`."""
        if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
            raise InputError(f"{what} must be a contiguous numpy array; np.ascontiguousarray makes one")
        if isinstance(array, np.ma.MaskedArray):
            raise InputError(f"{what} is masked, and the mask would not be sent; .filled(0) makes a plain array")
        if array.dtype.kind not in _NUMERIC and not array.dtype.name.startswith(_ML_DTYPES):
            raise InputError(f"{what} holds {array.dtype}; only numbers can be sent")
        return array.view(np.ndarray).reshape(-1)

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

    def try_out(self, op: str | None, source: Any, target: Any) -> None:
        """See `Arrays`."""
        if not target.flags.writeable:
            raise InputError("the array for the result is read-only; give one that can be written as out")
        if op is None:
            return
        dtype = source.dtype
        _makes_sense(op, str(dtype), is_bool=dtype.kind == "b", is_complex=dtype.kind == "c")
        one = np.zeros(1, dtype)
        try:
            self.reduce(op, one, one, one)
            if op == "avg":
                self.divide(one, 1)
        except TypeError as error:
            raise InputError(f"numpy has no {op} of {dtype}; convert the array to a type that has") from error


class TorchArrays:
    """torch tensors of any device and dtype that torch can add."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._tried: set[tuple[str | None, Any, Any]] = set()
        self._function: dict[str, Any] = {
            "sum": torch.add, "avg": torch.add, "min": torch.minimum, "max": torch.maximum, "prod": torch.mul,
        }  # fmt: skip

    def flat(self, array: Any, what: str) -> Any:
        """See `Arrays`."""
        torch = self._torch
        if not isinstance(array, torch.Tensor):
            raise InputError(f"{what} must be a tensor, not {type(array).__name__}")
        if type(array).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            raise InputError(f"{what} is a {type(array).__name__}; give the plain tensor in it, as .to_local() does")
        if array.layout != torch.strided or array.is_quantized:
            raise InputError(f"{what} must be a dense tensor, not {array.layout} of {array.dtype}")
        if array.device.type == "meta":
            raise InputError(f"{what} is on the device meta, so it has no data")
        if not array.is_contiguous():
            raise InputError(f"{what} must be a contiguous tensor; .contiguous() makes one")
        if array.is_conj():
            raise InputError(f"{what} is a conjugated view of memory that is not; .resolve_conj() makes a copy")
        if array.is_neg():
            raise InputError(f"{what} is a negated view of memory that is not; .resolve_neg() makes a copy")
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

    def try_out(self, op: str | None, source: Any, target: Any) -> None:
        """See `Arrays`."""
        try:
            target[:0].copy_(source[:0])
        except RuntimeError as error:  # an inference tensor outside of inference mode
            raise InputError(f"the tensor for the result cannot be written: {error}") from error
        kind = (op, source.dtype, source.device)
        if op is None or kind in self._tried:
            return
        name = self.dtype(source)
        _makes_sense(op, name, is_bool=name == "bool", is_complex=source.dtype.is_complex)
        try:
            one = self._torch.zeros(1, dtype=source.dtype, device=source.device)
            self.reduce(op, one, one, one)
            if op == "avg":
                self.divide(one, 1)
        except (RuntimeError, TypeError) as error:
            raise InputError(f"torch has no {op} of {name} here; convert the tensor to a type that has") from error
        self._tried.add(kind)


def _makes_sense(op: str, dtype: str, *, is_bool: bool, is_complex: bool) -> None:
    """The libraries add truth values without a carry, and numpy orders complex numbers by their real parts."""
    if is_bool and op in ("sum", "avg"):
        raise InputError(f"a {op} of {dtype} loses the count; convert to a whole type, or use max (any) or min (all)")
    if is_complex and op in ("min", "max"):
        raise InputError(f"there is no {op} of {dtype}: complex numbers have no order")
