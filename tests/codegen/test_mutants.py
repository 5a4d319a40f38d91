"""A thousand small changes to valid programs, judged by the verifier and by an independent interpreter.

What the interpreter can make fail the verifier must call an error, and nothing else.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from latecomer.codegen.lower import Options, lower
from latecomer.codegen.verify import examine
from latecomer.schedules.program import Program

from .cases import made
from .mutants import MUTATIONS
from .reference_interpreter import matters

BOTH = Options(out_of_place=True)
OUT = Options(in_place=False, out_of_place=True)
BASES = (
    ("stragglar", 4, None, "msccl-executor", Options()),
    ("ring", 3, 4, "msccl-executor", Options()),
    ("all_pairs", 3, 2, "rccl", BOTH),
    ("circulant", 5, 3, "rccl", OUT),
    ("tiling", 4, 3, "msccl-executor", BOTH),
    ("halving_doubling", 4, 4, "portable", OUT),
    ("circulant", 4, 2, "msccl", Options()),
)
MUTANTS = 1008


def bases() -> list[Program]:
    programs = []
    for name, ranks, chunks, target, options in BASES:
        schedule = made(name, ranks, chunks)
        assert schedule is not None
        programs.append(lower(schedule, target, options))
    return programs


def compare(programs: list[Program], mutants: int, seed: int) -> tuple[Counter[str], list[str]]:
    """(how many of each kind, disagreements)."""
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    disagreements = []
    while counts["mutants"] < mutants:
        k = counts["mutants"] % len(programs)
        mutation = rng.choice(MUTATIONS)
        mutant = mutation(programs[k], rng)
        if mutant == programs[k]:
            continue
        counts["mutants"] += 1
        errors = examine(mutant).errors
        failure = matters(mutant, seed=counts["mutants"])
        counts["errors"] += bool(errors)
        counts["failures"] += failure is not None
        if bool(errors) != (failure is not None):
            found = str(errors[0]) if errors else "no error"
            disagreements.append(f"{mutation.__name__} of {BASES[k][0]} #{counts['mutants']}: {failure} / {found}")
    return counts, disagreements


def test_bases_are_correct() -> None:
    for program in bases():
        assert examine(program).correct
        assert matters(program, runs=2) is None


@pytest.mark.parametrize("part", range(4))
def test_verifier_and_interpreter_agree(part: int) -> None:
    counts, disagreements = compare(bases(), MUTANTS // 4, seed=part)
    assert not disagreements, f"{len(disagreements)} of {dict(counts)}:\n" + "\n".join(disagreements)
    # Both answers must occur often, or the test says nothing.
    assert counts["failures"] > counts["mutants"] // 4
    assert counts["mutants"] - counts["failures"] > counts["mutants"] // 20
