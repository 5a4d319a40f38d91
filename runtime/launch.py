"""Joining and leaving a job that torchrun started: one process a rank, gloo on CPU, NCCL where there are GPUs."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import Any, Final, NamedTuple, NoReturn

from latecomer.runtime.transports.base import Transport
from latecomer.schedules.errors import InputError, LatecomerError
from latecomer.schedules.units import format_size

BYTES_AN_ELEMENT: Final = 24
"""What a run keeps of an element on a rank: what it adds, the buffer, the exact result, and what makes them."""


class Place(NamedTuple):
    """This process in the job; `device` is what its tensors live on."""

    rank: int
    ranks: int
    device: str


def join(backend: str | None, timeout_s: float, command: str) -> Place:
    """Initialize the default process group from torchrun's environment.

    Raises `InputError` outside of a job, and where torch cannot start the group.
    """
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        raise InputError(f"start this under torchrun: torchrun --nproc-per-node 8 -m {command}")
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        raise InputError("running needs torch: pip install 'latecomer[run]'") from error
    cuda = torch.cuda.is_available() and backend != "gloo"
    name = backend or ("nccl" if cuda else "gloo")
    known = [known for known in dist.Backend.backend_list if known != "undefined"]
    if any(part.rpartition(":")[2] not in known for part in name.lower().split(",")):
        raise InputError(f"torch.distributed has no backend {name!r}; it has {', '.join(known)}")
    device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if cuda else "cpu"
    options: dict[str, Any] = {}
    try:
        if cuda:
            torch.cuda.set_device(device)
            options["device_id"] = torch.device(device)  # the communicator is made now, with all ranks
        else:
            torch.set_num_threads(1)
        dist.init_process_group(name, timeout=timedelta(seconds=max(timeout_s, 60.0)), **options)
    except (RuntimeError, ValueError, AssertionError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"torch cannot start a process group with backend {name}: {why[:160]}") from error
    return Place(dist.get_rank(), dist.get_world_size(), device)


def transport_of(name: str, place: Place) -> Transport:
    """The transport called `name`, torch or nccl4py, of this process. Collective. Raises `InputError`."""
    if name == "torch":
        from latecomer.runtime.transports.torch_p2p import TorchTransport

        return TorchTransport()
    if place.device == "cpu":
        raise InputError("--transport nccl4py needs GPUs, and torch sees none here; use torch")
    from torch.distributed.distributed_c10d import _get_default_store

    from latecomer.runtime.transports.nccl4py import Nccl4pyTransport

    return Nccl4pyTransport(_get_default_store(), place.rank, place.ranks, place.device)


def require_room(elements: int) -> None:
    """Raises `InputError` where the data and references of the ranks here are more than the machine's memory."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    needed = elements * BYTES_AN_ELEMENT * here
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise InputError(
            f"the data and the exact result of {elements} elements take {format_size(needed)} with {here} ranks on "
            f"this machine, which has {format_size(memory)}; take a smaller size"
        )


def fail(error: LatecomerError, rank: int) -> NoReturn:
    """Say what was wrong and end this process at once: after a failure the group's own shutdown could hang.

    Of ranks that say the same, one speaks.
    """
    speaker = getattr(error, "speaker", None)
    if speaker is None or speaker == rank:
        text = f"error: rank {rank}: {error}"
    else:
        first = str(error).split("\n")[0]
        text = f"error: rank {rank}: {first} (rank {speaker} says where each rank stands)"
    print(text + "\n", end="", file=sys.stderr, flush=True)  # one write: other ranks write to the same terminal
    os._exit(error.exit_code)


def leave() -> None:
    """Everybody is done: shut the group down."""
    import torch.distributed as dist

    dist.barrier()
    dist.destroy_process_group()
