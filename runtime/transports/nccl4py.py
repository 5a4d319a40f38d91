"""`nccl4py`: NCCL by its own Python bindings, without a torch.distributed process group.

Messages go in groups (`latecomer.runtime.grouped`) on torch's current stream; all of them by one communicator, which
runs what it is given in the order in which it is given, on whatever streams. The communicator's id and the board go
through any torch store (a `TCPStore` that torchrun's MASTER_ADDR names, say).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.distributed_c10d import PrefixStore

from latecomer.runtime.arrays import Arrays, TorchArrays
from latecomer.runtime.board import Board, StoreBoard
from latecomer.schedules.errors import InputError

_ID = "latecomer/nccl4py/id"


class Nccl4pyTransport:
    """The end of rank `rank` of `ranks` on `device`, a CUDA device. Collective: it returns when all ranks made theirs.

    `name` tells the transports of one job apart where it makes several. Raises `InputError` without nccl4py. See
    `latecomer.runtime.transports.base.Transport`.
    """

    slot = 0
    grouped = True
    default_timeout_s = 600.0

    def __init__(self, store: Any, rank: int, ranks: int, device: str | torch.device, name: str = "") -> None:
        try:
            import nccl.core as nccl
        except ImportError as error:
            raise InputError("this transport needs nccl4py: pip install 'latecomer[nccl4py]'") from error
        self.rank, self.ranks = rank, ranks
        self.arrays: Arrays = TorchArrays()
        self.board: Board = StoreBoard(PrefixStore(f"latecomer/nccl4py/board/{name}", store))
        self._nccl: Any = nccl
        self._device = torch.device(device)
        key = f"{_ID}/{name}"
        if rank == 0:
            store.set(key, bytes(nccl.get_unique_id().as_bytes))
        self._communicator: Any = nccl.Communicator.init(ranks, rank, nccl.UniqueId.from_bytes(bytes(store.get(key))))

    def exchange(self, messages: Sequence[tuple[str, int, torch.Tensor]]) -> None:
        """Post `messages` as one group on the current stream; what is enqueued after this call sees them done."""
        stream = self._stream()
        with self._nccl.group():
            for kind, peer, array in messages:
                post = self._communicator.send if kind == "send" else self._communicator.recv
                post(array, peer, stream=stream)

    def _stream(self) -> int:
        return int(torch.cuda.current_stream(self._device).cuda_stream)

    def send(self, key: int, peer: int, tag: int, data: Any) -> None:
        """Never called: this transport is `grouped`."""
        raise NotImplementedError

    def receive(self, key: int, peer: int, tag: int, out: Any) -> None:
        """Never called: this transport is `grouped`."""
        raise NotImplementedError

    def wait(self, timeout_s: float) -> int | None:
        """Never called: this transport is `grouped`."""
        raise NotImplementedError

    def close(self) -> None:
        """Destroy the communicator."""
        communicator, self._communicator = self._communicator, None
        if communicator is not None:
            communicator.destroy()
