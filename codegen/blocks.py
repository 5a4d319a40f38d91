"""Pass: the ends of connections become threadblocks; a receive that is sent on at once becomes one step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from latecomer.codegen.connections import Part
from latecomer.codegen.drafts import Draft
from latecomer.codegen.targets import Target
from latecomer.schedules.errors import LimitExceeded
from latecomer.schedules.program import StepType

FORWARDED: dict[StepType, StepType] = {"r": "rcs", "rrc": "rrcs"}
"""The step that also sends on what it has received."""


@dataclass
class Block:
    """A threadblock: at most one connection to send on and one to receive on; its drafts by position, in list order."""

    send: int = -1
    recv: int = -1
    channel: int = 0
    drafts: list[int] = field(default_factory=list)


@dataclass
class _End:
    block: Block
    cost: int
    first: int
    last: int
    members: frozenset[int]


def place_in_blocks(
    drafts: Sequence[Draft], rank: int, parts: Iterable[Part], costs: Sequence[int],
    forwards: dict[int, int], target: Target,
) -> list[Block]:
    """One rank's threadblocks, in the order of their first drafts.

    A threadblock of its own per connection is always safe; two connections, one each way on one channel,
    share one where that costs no time: mostly receives that are sent on (`forwards`: position of a send →
    of its receive), or one starts when the other has ended; or where the target has too few threadblocks.
    Never so that something comes after a step that waits for a later arrival. Raises `LimitExceeded`.
    """
    receiving: dict[int, list[_End]] = defaultdict(list)
    sending: dict[int, list[_End]] = defaultdict(list)
    for part in parts:
        if part.receiver == rank:
            block = Block(recv=part.sender, channel=part.channel, drafts=part.received)
            receiving[part.channel].append(_end(block, drafts, costs))
        if part.sender == rank:
            block = Block(send=part.receiver, channel=part.channel, drafts=part.sent)
            sending[part.channel].append(_end(block, drafts, costs))
    blocks: list[Block] = []
    rest: list[tuple[list[_End], list[_End]]] = []
    for channel in sorted(set(receiving) | set(sending)):
        ins, outs = receiving[channel], sending[channel]
        if target.fused:
            blocks += _pair(ins, outs, drafts, target, _forwarding(forwards))
        blocks += _pair(ins, outs, drafts, target, _one_after_the_other)
        rest.append((ins, outs))
    for ins, outs in rest:
        spare = target.threadblocks - len(blocks) - sum(len(i) + len(o) for i, o in rest)
        if spare < 0:
            blocks += _pair(ins, outs, drafts, target, _same_peer_first)
    blocks += [end.block for ins, outs in rest for end in (*ins, *outs)]
    if len(blocks) > target.threadblocks:
        raise LimitExceeded(
            f"rank {rank} needs {len(blocks)} threadblocks for its connections; {target.name} has "
            f"{target.threadblocks}. Choose an algorithm with fewer peers (circulant, ring)",
            limit="threadblocks")
    return sorted(blocks, key=lambda block: block.drafts[0])


def _end(block: Block, drafts: Sequence[Draft], costs: Sequence[int]) -> _End:
    positions = block.drafts
    cost = sum(costs[p] for p in positions)
    return _End(block, cost, drafts[positions[0]].round, drafts[positions[-1]].round, frozenset(positions))


_Value = Callable[[_End, _End], tuple[int, int] | None]
"""(how much two ends want to share a threadblock, steps saved), or None: not at all."""


def _forwarding(forwards: dict[int, int]) -> _Value:
    known: dict[int, frozenset[int]] = {}

    def wanted(outs: _End) -> frozenset[int]:
        """The receives whose chunks `outs` sends on."""
        first = outs.block.drafts[0]
        if first not in known:
            known[first] = frozenset(forwards[p] for p in outs.block.drafts if p in forwards)
        return known[first]

    def value(ins: _End, outs: _End) -> tuple[int, int] | None:
        enough = max(len(ins.block.drafts), len(outs.block.drafts))
        if 2 * len(ins.members & wanted(outs)) < enough:
            return None
        together = sorted(ins.block.drafts + outs.block.drafts)
        joined = sum(forwards.get(later) == earlier for earlier, later in pairwise(together))
        return (joined, joined) if 2 * joined >= enough else None
    return value


def _one_after_the_other(ins: _End, outs: _End) -> tuple[int, int] | None:
    apart = max(ins.first - outs.last, outs.first - ins.last)
    return (-apart, 0) if apart > 0 else None


def _same_peer_first(ins: _End, outs: _End) -> tuple[int, int] | None:
    return (int(ins.block.recv == outs.block.send), 0)


def _pair(
    ins: list[_End], outs: list[_End], drafts: Sequence[Draft], target: Target, value: _Value
) -> list[Block]:
    """Merge the pairs that want it most, taking them out of `ins` and `outs`."""
    wishes = []
    for i, a in enumerate(ins):
        for j, b in enumerate(outs):
            wish = value(a, b)
            if wish is not None and a.cost + b.cost - wish[1] <= target.steps:
                wishes.append((-wish[0], i, j))
    blocks, used_in, used_out = [], set[int](), set[int]()
    for _, i, j in sorted(wishes):
        if i in used_in or j in used_out:
            continue
        together = sorted(ins[i].block.drafts + outs[j].block.drafts)
        stages = [drafts[p].stage for p in together]
        if any(later < earlier for earlier, later in pairwise(stages)):
            continue
        used_in.add(i)
        used_out.add(j)
        into, out = ins[i].block, outs[j].block
        blocks.append(Block(send=out.send, recv=into.recv, channel=into.channel, drafts=together))
    ins[:] = [end for i, end in enumerate(ins) if i not in used_in]
    outs[:] = [end for j, end in enumerate(outs) if j not in used_out]
    return blocks


def forwards(drafts: Sequence[Draft], conflicts: Sequence[Sequence[int]], longest: int) -> dict[int, int]:
    """Position of each send (of `longest` chunks at most) that could join a receive → that receive's position.

    The send reads exactly what the receive wrote and is the first thing to depend on it: whatever comes
    later can wait for both, and the order of messages stays the one by which nothing gets stuck.
    """
    first_dependent: dict[int, int] = {}
    for k, waits in enumerate(conflicts):
        for i in waits:
            first_dependent.setdefault(i, k)
    return {
        j: i for i, j in first_dependent.items()
        if drafts[j].type == "s" and drafts[i].type in FORWARDED and drafts[j].src == drafts[i].dst
        and drafts[j].length == drafts[i].length <= longest and drafts[j].stage == drafts[i].stage
        and list(conflicts[j]) == [i]
    }


def fuse(drafts: list[Draft], blocks: Sequence[Block], forwards: dict[int, int]) -> dict[int, int]:
    """Make one step of a receive and the send that follows it in its threadblock, in place.

    Returns the positions of the sends that are gone → those of the steps they are now part of.
    """
    joined: dict[int, int] = {}
    for block in blocks:
        kept: list[int] = []
        for position in block.drafts:
            if kept and forwards.get(position) == kept[-1]:
                receive = drafts[kept[-1]]
                drafts[kept[-1]] = receive._replace(type=FORWARDED[receive.type], send=drafts[position].send)
                joined[position] = kept[-1]
            else:
                kept.append(position)
        block.drafts = kept
    return joined
