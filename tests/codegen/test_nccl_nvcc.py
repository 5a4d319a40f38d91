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

ARCHITECTURES = (80, 90, 100)
STRICT = ("-Xcompiler=-Wall,-Wextra,-Werror", "-Werror=all-warnings")

DECLARATIONS = """// What the generated program uses of NCCL (NCCL User Guide, API), to compile it where NCCL is absent.
#pragma once
#include <cuda_runtime.h>
typedef struct ncclComm *ncclComm_t;
typedef struct { char internal[128]; } ncclUniqueId;
typedef enum { ncclSuccess, ncclUnhandledCudaError, ncclSystemError, ncclInternalError, ncclInvalidArgument }
    ncclResult_t;
typedef enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg } ncclRedOp_t;
typedef enum { ncclInt8, ncclInt32 = 2, ncclInt64 = 4, ncclHalf = 6, ncclFloat = 7, ncclDouble, ncclBfloat16 }
    ncclDataType_t;
extern "C" {
const char *ncclGetErrorString(ncclResult_t);
const char *ncclGetLastError(ncclComm_t);
ncclResult_t ncclGetUniqueId(ncclUniqueId *);
ncclResult_t ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
ncclResult_t ncclCommDestroy(ncclComm_t);
ncclResult_t ncclCommAbort(ncclComm_t);
ncclResult_t ncclCommCount(const ncclComm_t, int *);
ncclResult_t ncclCommUserRank(const ncclComm_t, int *);
ncclResult_t ncclCommCuDevice(const ncclComm_t, int *);
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclSend(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
ncclResult_t ncclRecv(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
ncclResult_t ncclAllReduce(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc on PATH: the program is compiled for the CPU only")
    place = tmp_path_factory.mktemp("nvcc")
    network, arrivals = Topology.switch(8, 450), ArrivalProfile.late(8, 7, 1e6)
    plan, ring = (synthesize(network, arrivals, 1 << 28, algorithm=name) for name in ("circulant", "ring"))
    write_project(plan, place, baselines={"ring": ring})
    return place


@pytest.fixture
def nccl() -> Path:
    found = find_nccl()
    if found is None:
        pytest.skip("no nccl.h: set NCCL_ROOT or install nvidia-nccl-cu13 to compile against NCCL itself")
    return found


@pytest.mark.usefixtures("nccl")
def test_compiles_and_links_without_a_warning(project: Path) -> None:
    bench = build(project, target="cuda", what="benchmark", flags=STRICT, architectures=ARCHITECTURES)
    done = subprocess.run([bench, "--help"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_compiles_against_declarations_alone(project: Path, tmp_path: Path) -> None:
    if find_nccl() is not None:
        pytest.skip("NCCL is here: compiled against its own header")
    (tmp_path / "nccl.h").write_text(DECLARATIONS)
    code = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in ARCHITECTURES]
    for source in ("allreduce.cu", "main.cu"):
        command = [
            "nvcc",
            "-std=c++17",
            "-O2",
            *STRICT,
            *code,
            f"-I{tmp_path}",
            "-c",
            source,
            "-o",
            f"{tmp_path}/{source}.o",
        ]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""


def test_cmake_configures(project: Path, nccl: Path, tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    done = subprocess.run(
        ["cmake", "-S", str(project), "-B", str(tmp_path), "-DCMAKE_CUDA_ARCHITECTURES=90", f"-DNCCL_ROOT={nccl}"],
        capture_output=True, text=True, check=False, timeout=120, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
