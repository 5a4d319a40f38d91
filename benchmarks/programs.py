"""Every algorithm for every target at every number of ranks: lowered, written, read back, proven; CPU seconds.

    python benchmarks/programs.py [N ...]

Prints a line per number of ranks; where a target cannot hold a schedule, the limit it names.
"""

from __future__ import annotations

import sys
import time

from latecomer.codegen import msccl_xml
from latecomer.codegen.lower import lower
from latecomer.codegen.targets import TARGETS
from latecomer.codegen.verify import examine
from latecomer.schedules.errors import LimitExceeded, NotApplicable
from latecomer.synth.chunking import Model
from latecomer.synth.registry import ALGORITHMS, Request

MODEL = Model(round_us=3.0, message_latency_us=0.0, message_us=1000.0, delay_us=10_000.0)


def main(sizes: list[int]) -> None:
    for ranks in sizes:
        proven, refused, slowest = 0, [], (0.0, "")
        for algorithm in ALGORITHMS:
            if not algorithm.static or algorithm.name == "exact" or algorithm.slow(ranks):
                continue
            large = ranks > 16 and algorithm.name == "all_pairs"
            try:
                schedule = algorithm.build(Request(ranks, 2 if large else None, MODEL))
            except NotApplicable:
                continue
            for name in TARGETS:
                start = time.process_time()
                try:
                    program = lower(schedule, name)
                except LimitExceeded as error:
                    refused.append(f"{algorithm.name} for {name}: {error.limit}")
                    continue
                text = msccl_xml.write(program, name)
                slowest = max(slowest, (time.process_time() - start, f"{algorithm.name} for {name}"))
                again = msccl_xml.read(text)
                report = examine(again, name)
                if again != program or not report.correct or not report.facts["rendezvous_safe"]:
                    sys.exit(f"{algorithm.name}, {ranks} ranks, {name}: {[str(f) for f in report.findings[:3]]}")
                proven += 1
        print(
            f"n = {ranks}: {proven} proven and rendezvous-safe; slowest to XML {slowest[0]:.2f} s ({slowest[1]})",
            flush=True,
        )
        for line in refused:
            print(f"    refused: {line}")


if __name__ == "__main__":
    main([int(a) for a in sys.argv[1:]] or [*range(2, 17), 32, 64])
