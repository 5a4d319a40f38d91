"""An emulated network: a network namespace per rank on a bridge, one rate-limited port each. Root, Linux.

    python benchmarks/netns.py --ranks 8 --rate 200Mbit/s --size 16MiB --delay 0,300ms,800ms -o netns.csv

Only what a host sends is limited (by tbf); one-port schedules are checked, so no port receives more than that, and
concurrent flows share the sender's. What it takes for stable figures, all of it measured: jumbo frames, `reno` (the
default bbr paces by itself), small socket buffers (a send must not end in the buffer), and senders that wait for their
own sends round by round. There is no delay line: latencies are those of the machine.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from latecomer.runtime.forked import Gloo, run_forked
from latecomer.schedules.errors import LatecomerError
from latecomer.schedules.topology import Topology
from latecomer.schedules.units import format_time, parse_rate, parse_size, parse_time

_CLONE_NEWNET = 0x40000000
_SYSCTLS = {
    "net.ipv4.tcp_congestion_control": "reno",
    "net.ipv4.tcp_wmem": "4096 65536 65536",
    "net.ipv4.tcp_slow_start_after_idle": "0",
    "net.ipv4.tcp_no_metrics_save": "1",
}


def sh(command: str) -> None:
    """Run it; raises with what it said."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    if done.returncode:
        raise LatecomerError(f"{command}: {done.stderr.strip() or done.stdout.strip()}")


class Network:
    """`ranks` namespaces named after this process, each with an interface e0 of `mbit` Mbit/s to a common bridge."""

    def __init__(self, ranks: int, mbit: float) -> None:
        self.ranks, self.mbit = ranks, mbit
        self._bridge = f"lc{os.getpid()}br"
        self._names = [f"lc{os.getpid()}r{rank}" for rank in range(ranks)]

    def __enter__(self) -> Network:
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _build(self) -> None:
        bridge = self._bridge
        sh(f"ip netns add {bridge}")
        sh(f"ip -n {bridge} link add br0 mtu 9000 type bridge && ip -n {bridge} link set br0 up")
        for rank, name in enumerate(self._names):
            sh(f"ip netns add {name}")
            sh(f"ip -n {name} link add e0 mtu 9000 type veth peer name p{rank} mtu 9000 netns {bridge}")
            sh(f"ip -n {bridge} link set p{rank} master br0 && ip -n {bridge} link set p{rank} up")
            sh(f"ip -n {name} addr add 10.77.0.{rank + 1}/24 dev e0")
            sh(f"ip -n {name} link set e0 up && ip -n {name} link set lo up")
            sh(f"tc -n {name} qdisc add dev e0 root tbf rate {self.mbit}mbit burst 64kb latency 2000ms")
            for key, value in _SYSCTLS.items():
                sh(f"ip netns exec {name} sysctl -qw '{key}={value}'")

    def enter(self, rank: int) -> None:
        """Move this process to the namespace of `rank`."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f"/run/netns/{self._names[rank]}", "rb") as namespace:
            if libc.setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")

    def __exit__(self, *error: object) -> None:
        for name in (*self._names, self._bridge):
            subprocess.run(f"ip netns del {name}", shell=True, capture_output=True)


def unavailable() -> str | None:
    """Why this machine cannot emulate a network, or None."""
    try:
        with Network(1, 100):
            return None
    except LatecomerError as error:
        return str(error)


def run(network: Network, cases: Sequence[Any], *, runs: int, timeout_s: float, ahead: int = 0) -> list[Any]:
    """The rows of `cases` (`latecomer.runtime.bench.Prepared`), one process a namespace. Raises with a rank's error."""
    from latecomer.runtime.bench import References, measure

    gloo, references = Gloo(network.ranks, "e0"), References(network.ranks)
    for prepared in cases:
        references.of(prepared.elements, prepared.case.seed)

    def work(rank: int) -> list[Any]:
        network.enter(rank)
        gloo.join(rank)
        rows = []
        for row in measure(cases, runs=runs, references=references, timeout_s=60.0, ahead=ahead):
            rows.append(row)
            if rank == 0:
                print(show(row), file=sys.stderr, flush=True)
        return rows

    try:
        outcomes = run_forked(network.ranks, work, timeout_s=timeout_s)
    finally:
        gloo.close()
    for rank, outcome in enumerate(outcomes):
        if outcome.error:
            raise LatecomerError(f"rank {rank}: {outcome.error}")
    return list(outcomes[0].value)


def show(row: Any) -> str:
    """One line."""
    text = f"{row.algorithm:18} delay {format_time(row.delay_us):>9}  {format_time(row.time_us):>9}"
    text += f" ({format_time(row.time_min_us)} … {format_time(row.time_max_us)})"
    if row.model_us:
        text += f"  model {format_time(row.model_us)} ({row.time_us / row.model_us - 1:+.1%})"
    return text + (f"  cut {row.cut}" if row.cut is not None else "")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure collectives on an emulated network.")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rate", default="200Mbit/s", help="of each host's port")
    parser.add_argument("--size", default="16MiB")
    parser.add_argument("--delay", default="0,800ms", help="one or more, separated by commas")
    parser.add_argument("--late", type=int, help="the late rank [the last]")
    parser.add_argument("--algorithm", default="backend,ring,halving_doubling,direct,all_pairs,adaptive",
                        help="names separated by commas; NAME:K takes K chunks or segments")  # fmt: skip
    parser.add_argument("--alpha", default="100us", help="a message's latency, for the model")
    parser.add_argument("--round-latency", default="1ms", help="a round's, for the model")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--ahead", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=900.0, help="of the whole, s")
    parser.add_argument("-o", "--output", help="CSV or JSON, by its suffix")
    args = parser.parse_args()
    why = unavailable()
    if why:
        sys.exit(f"network namespaces are not available here: {why}")
    from latecomer.runtime.bench import Case, prepare
    from latecomer.runtime.bench_files import write_rows

    gbs = parse_rate(args.rate)
    topology = Topology.switch(args.ranks, gbs, alpha_us=parse_time(args.alpha))
    late = args.ranks - 1 if args.late is None else args.late
    cases = []
    for delay in args.delay.split(","):
        for name in args.algorithm.split(","):
            algorithm, _, chunks = name.partition(":")
            count = int(chunks) if chunks else None
            cases.append(Case(algorithm, parse_size(args.size), late, parse_time(delay), 0, count))
    ready = prepare(cases, topology, parse_time(args.round_latency),
                    lambda case, why: print(f"{case.algorithm}: left out: {why}", file=sys.stderr))  # fmt: skip
    with Network(args.ranks, gbs * 8e3) as network:
        rows = run(network, ready, runs=args.runs, timeout_s=args.timeout, ahead=args.ahead)
    if args.output:
        write_rows(args.output, [dataclasses.asdict(row) for row in rows])


if __name__ == "__main__":
    main()
