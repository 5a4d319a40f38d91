"""The CPU stand-in itself: NCCL's blocking semantics, capture, and half precision bit by bit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from latecomer.runtime.native import shim_directory

HARNESS = r"""
#include <nccl.h>
#include <cassert>
#include <cinttypes>
#include <string>

static std::string how;

static void rank(ncclUniqueId id, int me) {
  const int other = 1 - me;
  ncclComm_t comm;
  cudaStream_t stream;
  cudaSetDevice(me);
  assert(ncclCommInitRank(&comm, 2, id, me) == ncclSuccess);
  cudaStreamCreate(&stream);
  char from[4] = {char(me), 1, 2, 3}, to[4] = {9, 9, 9, 9};
  if (how == "both send first" || how == "both send first, grouped") {
    const bool grouped = how != "both send first";
    if (grouped) ncclGroupStart();
    ncclSend(from, 1, ncclInt8, other, comm, stream);
    ncclRecv(to, 1, ncclInt8, other, comm, stream);
    if (grouped) ncclGroupEnd();
  } else if (how == "in order") {
    for (int i = 0; i < 4; ++i)
      if (me) ncclSend(from + i, 1, ncclInt8, other, comm, stream);
      else ncclRecv(to + i, 1, ncclInt8, other, comm, stream);
  } else if (how == "crossed groups") {  // rank 0: {send}, {recv}; rank 1: {send}, {recv}: neither can end its first
    for (int i = 0; i < 2; ++i) {
      ncclGroupStart();
      if (i == 0) ncclSend(from, 4, ncclInt8, other, comm, stream);
      else ncclRecv(to, 4, ncclInt8, other, comm, stream);
      ncclGroupEnd();
    }
  } else if (how == "sizes differ") {
    if (me) ncclSend(from, 4, ncclInt8, other, comm, stream);
    else ncclRecv(to, 3, ncclInt8, other, comm, stream);
  } else if (how == "nothing to say") {
    if (me) ncclSend(from, 0, ncclInt8, other, comm, stream);
    else ncclRecv(to, 0, ncclInt8, other, comm, stream);
  } else if (how == "synchronise in a capture") {
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    if (cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported) printf("refused\n");
    cudaGraph_t graph;
    cudaStreamEndCapture(stream, &graph);
    cudaGraphDestroy(graph);
  } else if (how == "wrong peer") {
    if (ncclSend(from, 1, ncclInt8, 2, comm, stream) == ncclInvalidArgument) printf("refused\n");
  }
  const cudaError_t status = cudaStreamSynchronize(stream);
  ncclResult_t later;
  ncclCommGetAsyncError(comm, &later);
  assert((status == cudaSuccess) == (later == ncclSuccess));
  printf("%d: %d %d%d%d%d\n", me, int(status), to[0], to[1], to[2], to[3]);
  cudaStreamDestroy(stream);
  ncclCommDestroy(comm);
}

int main(int, char **argv) {
  how = argv[1];
  if (how == "half") {
    for (unsigned bits = 0; bits < 65536; ++bits) {
      const float half = __half2float({uint16_t(bits)}), brain = __bfloat162float({uint16_t(bits)});
      uint32_t a, b;
      memcpy(&a, &half, 4);
      memcpy(&b, &brain, 4);
      printf("%" PRIu32 " %" PRIu32 " %u %u\n", a, b, __float2half_rn(half).bits, __float2bfloat16_rn(brain).bits);
    }
    return 0;
  }
  if (how == "round") {
    uint32_t bits;
    while (scanf("%" SCNu32, &bits) == 1) {
      float value;
      memcpy(&value, &bits, 4);
      printf("%u %u\n", __float2half_rn(value).bits, __float2bfloat16_rn(value).bits);
    }
    return 0;
  }
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  std::thread other(rank, id, 1);
  rank(id, 0);
  other.join();
}
"""


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shim")
    (place / "harness.cc").write_text(HARNESS)
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{shim_directory()}", "harness.cc", "-pthread"]
    subprocess.run([*command, "-o", "harness"], cwd=place, check=True)
    return place / "harness"


def run(harness: Path, how: str, text: str = "") -> tuple[list[str], str]:
    variables = os.environ | {"LC_SHIM_TIMEOUT_S": "1.5"}
    done = subprocess.run(
        [harness, how], input=text, capture_output=True, text=True, env=variables, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines()), done.stderr


@pytest.mark.parametrize("how", ["both send first, grouped", "in order", "nothing to say"])
def test_what_nccl_can_run_runs(harness: Path, how: str) -> None:
    lines, errors = run(harness, how)
    received = {"both send first, grouped": ("1999", "0999"), "in order": ("1123", "9999")}.get(how, ("9999", "9999"))
    assert lines == [f"0: 0 {received[0]}", f"1: 0 {received[1]}"]
    assert errors == ""


@pytest.mark.parametrize("how", ["both send first", "crossed groups"])
def test_a_send_waits_for_its_receive(harness: Path, how: str) -> None:
    lines, errors = run(harness, how)
    assert lines == ["0: 719 9999", "1: 719 9999"]
    assert "deadlock: nothing has moved for 1.5 s" in errors
    assert "rank 0, group 1: waits for rank 1 to take" in errors
    assert "rank 1, group 1: waits for rank 0 to take" in errors


def test_sizes_that_differ_are_named(harness: Path) -> None:
    _, errors = run(harness, "sizes differ")
    assert "rank 1 sends 4 bytes to rank 0 in its group 1, which receives 3 in its group 1" in errors


@pytest.mark.parametrize("how", ["synchronise in a capture", "wrong peer"])
def test_what_cuda_and_nccl_refuse_is_refused(harness: Path, how: str) -> None:
    assert run(harness, how)[0].count("refused") == 2


def test_half_types_hold_what_ieee_says(harness: Path) -> None:
    done = subprocess.run([harness, "half"], capture_output=True, text=True, check=True)
    columns = np.array([line.split() for line in done.stdout.splitlines()], dtype=np.uint32)
    bits = np.arange(65536, dtype=np.uint16)
    half = bits.view(np.float16).astype(np.float32)
    finite = ~np.isnan(half)
    assert np.array_equal(columns[finite, 0], half.view(np.uint32)[finite])
    assert np.array_equal(columns[finite, 2], bits[finite])
    brain = bits.astype(np.uint32) << 16
    assert np.array_equal(columns[:, 1], brain)
    number = ~np.isnan(brain.view(np.float32))
    assert np.array_equal(columns[number, 3], bits[number])


def test_half_types_round_to_nearest_even(harness: Path) -> None:
    random = np.random.default_rng(0)
    values = random.standard_normal(3000).astype(np.float32) * np.float32(2.0) ** random.integers(-30, 20, 3000)
    halves = np.arange(0, 31743, 7, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = (halves[:-1] + halves[1:]) / 2  # coarse: many are exactly half way
    edges = np.array([65504, 65519.99, 65520, 2**-24, 2**-25, 2**-25 * 1.01, 6.1e-5, 0, -0.0, np.inf], np.float32)
    values = np.concatenate([values.astype(np.float32), halves, between, edges])
    done = subprocess.run(
        [harness, "round"], input="\n".join(map(str, values.view(np.uint32).tolist())), capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    columns = np.array([line.split() for line in done.stdout.splitlines()], dtype=np.uint16)
    with np.errstate(over="ignore"):
        assert np.array_equal(columns[:, 0], values.astype(np.float16).view(np.uint16))
    low = values.view(np.uint32).astype(np.uint64)
    assert np.array_equal(columns[:, 1], ((low + 0x7FFF + (low >> 16 & 1)) >> 16).astype(np.uint16))
