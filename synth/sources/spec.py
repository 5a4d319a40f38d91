"""`load_topology`: from what a user writes after `--topology` to a `Topology`."""

from __future__ import annotations

import difflib
import os
from typing import IO, Any

from latecomer.schedules.errors import InputError, TopologyError
from latecomer.schedules.topology import Topology
from latecomer.synth.sources.files import read_text
from latecomer.synth.sources.nvidia_smi import read_nvidia_smi
from latecomer.synth.sources.presets import PRESETS, parse_switch, preset
from latecomer.synth.sources.topo_matrix import looks_like_topo


def load_topology(
    spec: str,
    *,
    gpu: str | None = None,
    link_rate_gbs: float | None = None,
    alpha_us: float | None = None,
    stdin: IO[Any] | None = None,
) -> Topology:
    """The topology that `spec` names: a preset, `switch:N@RATE[,ALPHA][,exclusive]`, a file, or `-` for
    `stdin`.

    Parameters
    ----------
    gpu, link_rate_gbs:
        For the text of `nvidia-smi topo -m`, which names neither (see `read_nvidia_smi`).
    alpha_us:
        Replaces the α of every pair, µs.

    Raises
    ------
    InputError, TopologyError
        A name that is neither preset nor file, a file that cannot be read or is something else.
    """
    name = spec.strip()
    if name.lower() in PRESETS or name.startswith("switch:"):
        _refuse_rates(name, gpu, link_rate_gbs)
        topology = parse_switch(name) if name.startswith("switch:") else preset(name.lower())
    elif name == "-" or _is_path(name):
        label = "standard input" if name == "-" else name
        topology = read_topology(read_text(name, stdin=stdin), label, gpu=gpu, link_rate_gbs=link_rate_gbs)
    else:
        raise InputError(_unknown(name))
    return topology if alpha_us is None else topology.with_alpha(alpha_us)


def read_topology(text: str, source: str, *, gpu: str | None = None, link_rate_gbs: float | None = None) -> Topology:
    """The topology in `text`, whose format is recognised; `source` names it in errors.

    Raises `TopologyError` for text that is none, naming the format where it is a known one.
    """
    start = text.lstrip()
    if looks_like_topo(text) and "ROCm System Management" not in text:
        return read_nvidia_smi(text, source, gpu=gpu, link_rate_gbs=link_rate_gbs)
    if start.startswith(("{", "[")):
        _refuse_rates(source, gpu, link_rate_gbs)
        return Topology.from_json(text, source)
    raise TopologyError(f"{source}: {_what_it_is(start)}")


def _refuse_rates(name: str, gpu: str | None, link_rate_gbs: float | None) -> None:
    if gpu is not None or link_rate_gbs is not None:
        raise InputError(f"--gpu and --link-rate are for the text of `nvidia-smi topo -m`; {name} states its own rates")


def _what_it_is(text: str) -> str:
    instead = "give the text of `nvidia-smi topo -m`, a topology JSON, a preset or switch:N@RATE"
    if "ROCm System Management" in text:
        return f"this is the text of rocm-smi, which is not supported yet; {instead} (mi300x is one)"
    if "<system" in text:
        kind = "RCCL" if "<xgmi" in text or "gcn=" in text else "NCCL"
        return f"this is an {kind} topology XML, which is not supported yet; {instead}"
    if "<algo" in text:
        return f"this is an MSCCL program, not a topology; {instead}"
    return f"no topology found; {instead}"


def _is_path(name: str) -> bool:
    return os.path.exists(name)  # False, not an error, for names that no file can have


def _unknown(name: str) -> str:
    if name.lower().startswith("switch"):
        return f"{name!r} is not a topology; a switch is written like switch:8@450GB/s"
    if "/" in name or "." in name:
        return f"no such file: {name}; a topology is a file, a preset ({', '.join(PRESETS)}) or switch:N@RATE"
    near = difflib.get_close_matches(name.lower(), PRESETS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    return (
        f"{name!r} is neither a preset nor a file; {hint}Presets are {', '.join(PRESETS)}; "
        "others are switch:N@RATE, a file, or - for standard input"
    )
