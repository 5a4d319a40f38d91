"""What an executor refuses before anything is sent: the other ranks of these tests are not there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from latecomer.runtime.arrays import NumpyArrays
from latecomer.runtime.executor import Executor
from latecomer.runtime.oracle import LocalGroup
from latecomer.runtime.plan import Plan
from latecomer.runtime.program_plan import ProgramPlan
from latecomer.schedules.errors import InputError
from latecomer.schedules.program import Gpu, Program, Step, Threadblock
from tests.runtime.cases import schedule


def plan() -> Plan:
    built = schedule("ring", 2, 0)
    assert built is not None
    return Plan(built)


@pytest.fixture
def one() -> Iterator[Executor]:
    with LocalGroup(plan(), timeout_s=2.0) as group:
        yield group.executors[0]
        assert group.executors[0]._calls == 0, "something was sent"


def test_memory_in_common_in_part(one: Executor) -> None:
    whole = np.zeros(12)
    with pytest.raises(InputError, match="overlap in part; they must be the same memory"):
        one.all_reduce(whole[:8], out=whole[4:])
    with pytest.raises(InputError, match="overlap in part"):
        one.all_reduce(whole[4:], out=whole[:8])


def test_arrays_that_hold_no_numbers(one: Executor) -> None:
    for array in (np.array([1, None]), np.array(["a"]), np.zeros(3, "datetime64[s]"), np.zeros(3, [("a", "f4")])):
        with pytest.raises(InputError, match=r"the buffer holds .* only numbers can be sent"):
            one.all_reduce(array)
    with pytest.raises(InputError, match="the mask would not be sent"):
        one.all_reduce(np.ma.masked_equal(np.ones(3), 1.0))


def test_reductions_that_make_no_sense(one: Executor) -> None:
    with pytest.raises(InputError, match="a sum of bool loses the count; convert to a whole type, or use max"):
        one.all_reduce(np.ones(3, bool))
    for op in ("min", "max"):
        with pytest.raises(InputError, match=f"no {op} of complex64: complex numbers have no order"):
            one.all_reduce(np.ones(3, np.complex64), op=op)


def test_a_type_that_numpy_cannot_reduce(one: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    def reduce(*args: Any) -> None:
        raise TypeError("no loop")

    monkeypatch.setattr(one.transport.arrays, "reduce", reduce)
    with pytest.raises(InputError, match="numpy has no prod of float32; convert the array"):
        one.all_reduce(np.ones(3, np.float32), op="prod")


def test_a_result_that_cannot_be_written(one: Executor) -> None:
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    with pytest.raises(InputError, match="read-only; give one that can be written as out"):
        one.all_reduce(fixed)


def test_bools_and_fixed_sources_that_can_be_reduced() -> None:
    with LocalGroup(plan()) as group:
        data = [np.array([True, False]), np.array([False, False])]
        for array in data:
            array.flags.writeable = False
        assert [list(r) for r in group.all_reduce(data, op="max", out_of_place=True)] == [[True, False]] * 2


def test_a_matrix_is_sent_whole() -> None:
    with LocalGroup(plan()) as group:
        done = group.all_reduce([np.ones((2, 3)).view(np.matrix) for _ in range(2)])
        assert all((array == 2).all() for array in done)


def test_tensors_whose_memory_is_not_their_value() -> None:
    torch = pytest.importorskip("torch")
    from latecomer.runtime.arrays import TorchArrays

    class Wrapper(torch.Tensor):  # type: ignore[misc]
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    arrays = TorchArrays()
    for tensor, said in (
        (torch.ones(2, dtype=torch.complex64).conj(), r"\.resolve_conj\(\) makes a copy"),
        (torch._neg_view(torch.ones(2)), r"\.resolve_neg\(\) makes a copy"),
        (torch.ones(2).to_sparse(), "must be a dense tensor, not torch.sparse_coo"),
        (torch.ones(2, device="meta"), "on the device meta"),
        (torch.ones(2).as_subclass(Wrapper), "is a Wrapper; give the plain tensor in it"),
        (torch.ones(2, 3).T, r"\.contiguous\(\) makes one"),
        (np.ones(2), "must be a tensor, not ndarray"),
    ):
        with pytest.raises(InputError, match=said):
            arrays.flat(tensor, "the buffer")
    assert len(arrays.flat(torch.nn.Parameter(torch.ones(2, 2)), "the buffer")) == 4


def test_tensors_that_cannot_be_reduced_or_written() -> None:
    torch = pytest.importorskip("torch")
    from latecomer.runtime.arrays import TorchArrays

    arrays = TorchArrays()
    for op, dtype, said in (
        ("max", torch.complex64, "no max of complex64"),
        ("sum", torch.bool, "a sum of bool loses the count"),
        ("sum", torch.float8_e4m3fn, "torch has no sum of float8_e4m3fn"),
    ):
        buffer = torch.ones(2).to(dtype)
        with pytest.raises(InputError, match=said):
            arrays.try_out(op, buffer, buffer)
    with torch.inference_mode():
        buffer = torch.ones(2)
    with pytest.raises(InputError, match="cannot be written: Inplace update to inference tensor"):
        arrays.try_out("sum", buffer, buffer)
    whole = torch.zeros(12)
    assert arrays.overlap(whole[:8], whole[4:])
    assert not arrays.overlap(whole[:6], whole[6:])


def program(
    collective: str, steps: tuple[tuple[Step, ...], tuple[Step, ...]], own: int, chunks: int, *, in_place: bool = True
) -> ProgramPlan:
    """Two ranks, one threadblock each; `own` is the chunks of a rank's input."""
    gpus = tuple(Gpu(r, own, chunks, 0, (Threadblock(0, 1 - r, 1 - r, 0, steps[r]),)) for r in range(2))
    return ProgramPlan(Program("two", collective, 2, 1, chunks, "Simple", in_place, not in_place, 0, 2**30, gpus))


def gather(*, in_place: bool = True) -> ProgramPlan:
    if in_place:
        first = (Step("s", "o", 0, "o", 0), Step("r", "o", 1, "o", 1))
        last = (Step("r", "o", 0, "o", 0), Step("s", "o", 1, "o", 1))
    else:
        first = (Step("cpy", "i", 0, "o", 0), Step("s", "i", 0, "o", 0), Step("r", "o", 1, "o", 1))
        last = (Step("cpy", "i", 0, "o", 1), Step("r", "o", 0, "o", 0), Step("s", "i", 0, "o", 1))
    return program("allgather", (first, last), 1, 2, in_place=in_place)


@pytest.mark.parametrize("in_place", [True, False])
def test_pieces_of_ranks_are_not_padded(in_place: bool) -> None:
    """At the end of the message a pad would move every piece but the first."""
    with LocalGroup(gather(in_place=in_place)) as group:
        for out_of_place in (False, True):
            done = group.all_reduce([np.array([1.0, 0.0]), np.array([0.0, 2.0])], out_of_place=out_of_place)
            assert [list(array) for array in done] == [[1.0, 2.0]] * 2
        with pytest.raises(InputError, match=r"3 elements do not divide .* 2 chunks, .* a multiple of 2: 2 or 4"):
            group.executors[0].all_reduce(np.zeros(3))
        with pytest.raises(InputError, match=r"a multiple of 2: 2$"):
            group.executors[0].all_reduce(np.zeros(1))


def test_a_program_that_gathers_takes_no_reduction() -> None:
    """An average would be divided by the number of ranks."""
    with LocalGroup(gather()) as group:
        with pytest.raises(InputError, match="gathers and reduces nothing, so op='avg' means nothing"):
            group.executors[0].all_reduce(np.zeros(2), op="avg")
        done = group.all_reduce([np.array([True, False]), np.array([False, True])])  # bool has no sum
        assert all(array.all() for array in done)


def test_a_program_of_one_chunk_out_of_place() -> None:
    first, last = Step("s", "o", 0, "o", 0), Step("r", "o", 0, "o", 0)
    plan = program("allreduce", ((first, last), (Step("rrc", "o", 0, "o", 0), Step("s", "o", 0, "o", 0))), 1, 1)
    with LocalGroup(plan) as group:
        done = group.all_reduce([np.array([1.0]), np.array([2.0])], out_of_place=True)
        assert [list(array) for array in done] == [[3.0]] * 2


def test_one_executor_a_transport() -> None:
    with LocalGroup(plan()) as group, pytest.raises(InputError, match="make another transport"):
        Executor(plan(), group.executors[0].transport)


def test_a_closed_executor_says_so(one: Executor) -> None:
    one.close()
    one.close()
    for use in (lambda: one.all_reduce(np.ones(3)), lambda: one.prepare(3)):
        with pytest.raises(InputError, match="this executor is closed; make another, on a transport of its own"):
            use()


def test_one_call_at_a_time() -> None:
    with LocalGroup(plan()) as group:
        one, other = group.executors
        thread = threading.Thread(target=one.all_reduce, args=(np.ones(3),))
        thread.start()
        while not one._in_call.locked():
            pass
        with pytest.raises(InputError, match="in a call already, of another thread"):
            one.all_reduce(np.ones(3))
        other.all_reduce(np.ones(3))
        thread.join()


def test_types_of_ml_dtypes_are_numbers() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in ("bfloat16", "float8_e4m3fn", "int4"):
        array = np.ones(3).astype(getattr(ml_dtypes, name))
        NumpyArrays().try_out("sum", NumpyArrays().flat(array, "the buffer"), array)
