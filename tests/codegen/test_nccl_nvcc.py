"""nvcc compiles the generated project against the real headers, for three generations of GPUs, without a warning."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from latecomer.codegen.nccl_program import write_project
from latecomer.runtime.native import build, find_nccl
from latecomer.schedules.arrivals import ArrivalProfile
from latecomer.schedules.topology import Topology
from latecomer.synth.synthesize import synthesize


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc on PATH: the program is compiled for the CPU only")
    if find_nccl() is None:
        pytest.skip("no nccl.h: set NCCL_ROOT or install nvidia-nccl-cu13 to compile the program with nvcc")
    place = tmp_path_factory.mktemp("nvcc")
    network, arrivals = Topology.switch(8, 450), ArrivalProfile.late(8, 7, 1e6)
    plan, ring = (synthesize(network, arrivals, 1 << 28, algorithm=name) for name in ("circulant", "ring"))
    write_project(plan, place, baselines={"ring": ring})
    return place


def test_compiles_and_links_without_a_warning(project: Path) -> None:
    flags = ("-Xcompiler=-Wall,-Wextra,-Werror", "-Werror=all-warnings")
    bench = build(project, target="cuda", what="benchmark", flags=flags)
    done = subprocess.run([bench, "--help"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_cmake_configures_and_names_what_it_finds(project: Path, tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    nccl = find_nccl()
    done = subprocess.run(
        ["cmake", "-S", str(project), "-B", str(tmp_path), "-DCMAKE_CUDA_ARCHITECTURES=90", f"-DNCCL_ROOT={nccl}"],
        capture_output=True, text=True, check=False, timeout=120, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
