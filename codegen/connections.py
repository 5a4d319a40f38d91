"""Pass: who talks to whom becomes connections, cut over channels so that threadblocks stay within their steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from latecomer.codegen.drafts import Draft
from latecomer.codegen.targets import CONNECTIONS_PER_CHANNEL, Target
from latecomer.schedules.errors import LimitExceeded


@dataclass
class Part:
    """A stretch of what `sender` sends to `receiver`, on one channel: drafts by their positions in the
    ranks' lists.

    `received` holds the local drafts too that work on what is received here.
    """

    sender: int
    receiver: int
    sent: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    channel: int = -1


@dataclass
class _Connection:
    sent: list[int] = field(default_factory=list)
    received: list[list[int]] = field(default_factory=list)
    """Per receive, its position and those of the local drafts that belong to it."""
    first: int = 0


def connect(ranks: Sequence[Sequence[Draft]], costs: Sequence[Sequence[int]], target: Target) -> list[Part]:
    """All connections in parts, with channels: dense from 0, at most 32 each way per rank and channel.

    Before: drafts in list order, `costs[rank][position]` steps each (nops included). After: every draft is
    in exactly one part (sends in `sent`, all others in `received`); either end of a part fits the steps of
    one threadblock; the k-th send of a part meets its k-th receive. Raises `LimitExceeded`.
    """
    parts: list[Part] = []
    connections = sorted(_collect(ranks).items(), key=lambda item: (item[1].first, item[0]))
    for (sender, receiver), connection in connections:
        parts += _cut(sender, receiver, connection, costs, target)
    _give_channels(parts, target)
    return parts


def _collect(ranks: Sequence[Sequence[Draft]]) -> dict[tuple[int, int], _Connection]:
    found: dict[tuple[int, int], _Connection] = defaultdict(_Connection)
    for rank, drafts in enumerate(ranks):
        for position, draft in enumerate(drafts):
            if draft.send is not None:
                connection = found[rank, draft.send.peer]
                if not connection.sent:
                    connection.first = draft.send.message
                connection.sent.append(position)
            elif draft.recv is not None:
                found[draft.recv.peer, rank].received.append([position])
            elif draft.home is not None:
                _adopt(found[draft.home.peer, rank].received, drafts, position)
    return found


def _adopt(received: list[list[int]], drafts: Sequence[Draft], position: int) -> None:
    """Put a local draft with the receive that brought what it reads (or its message's last)."""
    local = drafts[position]
    for group in reversed(received):
        brought = drafts[group[0]]
        if brought.recv is not None and local.home is not None and brought.recv.message != local.home.message:
            break
        if brought.dst == local.src:
            group.append(position)
            return
    received[-1].append(position)


def _cut(
    sender: int, receiver: int, connection: _Connection, costs: Sequence[Sequence[int]], target: Target
) -> list[Part]:
    sending = [costs[sender][p] for p in connection.sent]
    receiving = [sum(costs[receiver][p] for p in group) for group in connection.received]
    total = max(sum(sending), sum(receiving))
    count = -(-total // target.steps)
    even = -(-total // count) + max(receiving)
    most = min(target.steps, even) if count > 1 else target.steps
    parts, used_s, used_r = [Part(sender, receiver)], 0, 0
    for k, position in enumerate(connection.sent):
        if max(sending[k], receiving[k]) > target.steps:
            raise LimitExceeded(
                f"one message from rank {sender} to rank {receiver} takes {max(sending[k], receiving[k])} steps, and a "
                f"threadblock of {target.name} has {target.steps}; use fewer chunks",
                limit="steps")
        if parts[-1].sent and (used_s + sending[k] > most or used_r + receiving[k] > most):
            parts.append(Part(sender, receiver))
            used_s = used_r = 0
        used_s, used_r = used_s + sending[k], used_r + receiving[k]
        parts[-1].sent.append(position)
        parts[-1].received += connection.received[k]
    return parts


def _give_channels(parts: list[Part], target: Target) -> None:
    sends: dict[tuple[int, int], int] = defaultdict(int)
    receives: dict[tuple[int, int], int] = defaultdict(int)
    taken: dict[tuple[int, int], int] = defaultdict(int)
    for part in parts:
        channel = taken[part.sender, part.receiver]
        while (sends[part.sender, channel] >= CONNECTIONS_PER_CHANNEL
               or receives[part.receiver, channel] >= CONNECTIONS_PER_CHANNEL):
            channel += 1
        if channel >= target.channels:
            raise LimitExceeded(
                f"rank {part.sender} sends so much to rank {part.receiver} that it takes more than the "
                f"{target.channels} channels of {target.name}; use fewer chunks, or ranks that share the work",
                limit="channels")
        part.channel = channel
        part.received.sort()
        taken[part.sender, part.receiver] = channel + 1
        sends[part.sender, channel] += 1
        receives[part.receiver, channel] += 1
