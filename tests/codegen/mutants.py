"""Small changes to a program, each of a kind that people and tools make by mistake."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

from latecomer.schedules.program import Program, Step, StepType, Threadblock

Mutation = Callable[[Program, random.Random], Program]


Blocks = tuple[Threadblock, ...]


def _gpu(p: Program, rng: random.Random, change: Callable[[Blocks], Blocks]) -> Program:
    g = rng.randrange(len(p.gpus))
    gpu = replace(p.gpus[g], threadblocks=change(p.gpus[g].threadblocks))
    return replace(p, gpus=(*p.gpus[:g], gpu, *p.gpus[g + 1:]))


def _block(p: Program, rng: random.Random, change: Callable[[Threadblock], Threadblock]) -> Program:
    def one(blocks: tuple[Threadblock, ...]) -> tuple[Threadblock, ...]:
        t = rng.randrange(len(blocks))
        return (*blocks[:t], change(blocks[t]), *blocks[t + 1:])
    return _gpu(p, rng, one)


def _step(p: Program, rng: random.Random, change: Callable[[Step, Threadblock], Step]) -> Program:
    def one(tb: Threadblock) -> Threadblock:
        s = rng.randrange(len(tb.steps))
        return replace(tb, steps=(*tb.steps[:s], change(tb.steps[s], tb), *tb.steps[s + 1:]))
    return _block(p, rng, one)


def _with_dep(p: Program, rng: random.Random, change: Callable[[Step], Step]) -> Program:
    return _step(p, rng, lambda step, tb: change(step) if step.depid >= 0 else
                 change(next((x for x in tb.steps if x.depid >= 0), step)) if rng.random() < 0.2 else step)


def swap_peers(p: Program, rng: random.Random) -> Program:
    return _block(p, rng, lambda tb: replace(tb, send=tb.recv, recv=tb.send))


def other_peer(p: Program, rng: random.Random) -> Program:
    return _block(p, rng, lambda tb: replace(tb, send=rng.randrange(p.ranks)) if tb.send >= 0
                  else replace(tb, recv=rng.randrange(p.ranks)))


def drop_dependency(p: Program, rng: random.Random) -> Program:
    return _with_dep(p, rng, lambda step: step._replace(depid=-1, deps=-1))


def drop_a_nop(p: Program, rng: random.Random) -> Program:
    def one(tb: Threadblock) -> Threadblock:
        nops = [s for s, step in enumerate(tb.steps) if step.type == "nop"]
        if not nops:
            return tb
        s = rng.choice(nops)
        return replace(tb, steps=(*tb.steps[:s], *tb.steps[s + 1:]))
    return _block(p, rng, one)


def add_dependency(p: Program, rng: random.Random) -> Program:
    def one(blocks: tuple[Threadblock, ...]) -> tuple[Threadblock, ...]:
        t, other = rng.randrange(len(blocks)), rng.choice(blocks)
        s = rng.randrange(len(blocks[t].steps))
        step = blocks[t].steps[s]._replace(depid=other.id, deps=rng.randrange(len(other.steps)))
        changed = replace(blocks[t], steps=(*blocks[t].steps[:s], step, *blocks[t].steps[s + 1:]))
        return (*blocks[:t], changed, *blocks[t + 1:])
    return _gpu(p, rng, one)


def other_dep(p: Program, rng: random.Random) -> Program:
    return _with_dep(p, rng, lambda step: step._replace(deps=step.deps + rng.choice((-2, -1, 1, 2))))


def other_depid(p: Program, rng: random.Random) -> Program:
    return _with_dep(p, rng, lambda step: step._replace(depid=max(0, step.depid + rng.choice((-1, 1)))))


def flip_hasdep(p: Program, rng: random.Random) -> Program:
    return _step(p, rng, lambda step, _: step._replace(hasdep=1 - step.hasdep))


def offset(p: Program, rng: random.Random) -> Program:
    by = rng.choice((-1, 1))
    return _step(p, rng, lambda step, _: step._replace(srcoff=step.srcoff + by) if rng.random() < 0.5
                 else step._replace(dstoff=step.dstoff + by))


def cnt(p: Program, rng: random.Random) -> Program:
    return _step(p, rng, lambda step, _: step._replace(cnt=step.cnt + rng.choice((-1, 1))))


def channel(p: Program, rng: random.Random) -> Program:
    return _block(p, rng, lambda tb: replace(tb, chan=tb.chan + 1))


def step_type(p: Program, rng: random.Random) -> Program:
    kinds = get_args(StepType)
    return _step(p, rng, lambda step, _: step._replace(type=rng.choice(kinds)))


def order(p: Program, rng: random.Random) -> Program:
    def one(tb: Threadblock) -> Threadblock:
        if len(tb.steps) < 2:
            return tb
        s = rng.randrange(len(tb.steps) - 1)
        a, b = tb.steps[s:s + 2]
        return replace(tb, steps=(*tb.steps[:s], b, a, *tb.steps[s + 2:]))
    return _block(p, rng, one)


def buffer(p: Program, rng: random.Random) -> Program:
    return _step(p, rng, lambda step, _: step._replace(srcbuf=rng.choice("ios")) if rng.random() < 0.5
                 else step._replace(dstbuf=rng.choice("ios")))


def delete_step(p: Program, rng: random.Random) -> Program:
    def one(tb: Threadblock) -> Threadblock:
        s = rng.randrange(len(tb.steps))
        return replace(tb, steps=(*tb.steps[:s], *tb.steps[s + 1:]))
    return _block(p, rng, one)


def less_scratch(p: Program, rng: random.Random) -> Program:
    g = rng.randrange(len(p.gpus))
    gpu = replace(p.gpus[g], s_chunks=max(0, p.gpus[g].s_chunks - 1))
    return replace(p, gpus=(*p.gpus[:g], gpu, *p.gpus[g + 1:]))


def root(p: Program, rng: random.Random) -> Program:
    return rng.choice((
        lambda: replace(p, channels=p.channels - 1), lambda: replace(p, channels=p.channels + 1),
        lambda: replace(p, ranks=p.ranks - 1), lambda: replace(p, ranks=p.ranks + 1),
        lambda: replace(p, in_place=not p.in_place), lambda: replace(p, out_of_place=not p.out_of_place),
        lambda: replace(p, protocol="LL"), lambda: replace(p, min_bytes=2**40),
        lambda: replace(p, gpus=p.gpus[1:]), lambda: replace(p, gpus=tuple(reversed(p.gpus))),
    ))()


MUTATIONS: tuple[Mutation, ...] = (
    swap_peers, other_peer, drop_dependency, drop_dependency, drop_a_nop, add_dependency, other_dep, other_depid,
    flip_hasdep, offset, cnt, channel, step_type, order, order, buffer, delete_step, less_scratch, root,
)
