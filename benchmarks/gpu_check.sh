#!/usr/bin/env bash
# Builds generated CUDA/NCCL programs on this machine, checks them, measures a sweep of sizes, and writes JSON.
#
#   benchmarks/gpu_check.sh [--ranks N] [--late R] [--out DIR] [--algorithms "A B …"] [--max-bytes N] [--processes]
#                          [--cpu] [--quick]
#
# With as many GPUs as ranks: one process a GPU. With fewer: all ranks in one process (--processes: one process each),
# several on a GPU, which NCCL 2.30 or newer allows with NCCL_MULTI_RANK_GPU_ENABLE=1; that is for correctness, its
# times mean nothing.
# --cpu: the same through the CPU stand-in, to try this script. Needs nvcc, NCCL (NCCL_ROOT or the wheel
# nvidia-nccl-cu13) and an installed latecomer (PYTHON names the interpreter). Exit code 0: every result was right.
set -euo pipefail

ranks= late= out=gpu_check algorithms= max_bytes=$((1 << 28)) target=cuda quick= processes=
while [ $# -gt 0 ]; do
  case $1 in
    --ranks) ranks=$2; shift ;;
    --late) late=$2; shift ;;
    --out) out=$2; shift ;;
    --algorithms) algorithms=$2; shift ;;
    --max-bytes) max_bytes=$2; shift ;;
    --cpu) target=cpu ;;
    --quick) quick=1 ;;
    --processes) processes=1 ;;
    *) sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p' >&2; exit 2 ;;
  esac
  shift
done
python=${PYTHON:-python3}
export TARGET=$target

if [ "$target" = cuda ]; then
  command -v nvidia-smi > /dev/null || { echo "error: no nvidia-smi: no GPU here (--cpu tries the script)" >&2; exit 2; }
  gpus=$(nvidia-smi -L | wc -l)
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
  machine=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sort | uniq -c | sed 's/^ *//' | tr '\n' ';')
else
  gpus=0 capability=0 machine="CPU stand-in"
fi
[ -n "$ranks" ] || { [ "$gpus" -gt 1 ] && ranks=$gpus || ranks=4; }
[ -n "$late" ] || late=$((ranks - 1))
if [ -z "$algorithms" ]; then
  algorithms="circulant all_pairs direct"
  [ $((ranks & (ranks - 1))) -ne 0 ] || algorithms="$algorithms tiling"
fi
if [ "$gpus" -lt "$ranks" ] && [ "$target" = cuda ]; then
  # Kernels of several ranks wait for each other on one GPU: few channels, and nothing loaded while they wait.
  export NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=${NCCL_MAX_CTAS:-4} CUDA_MODULE_LOADING=EAGER
fi
mkdir -p "$out"
started=()
stop() { for pid in "${started[@]:-}"; do [ -z "$pid" ] || kill "$pid" 2> /dev/null || true; done; }
trap stop EXIT

# launch BENCH ARGUMENTS…: on all ranks; fails when a rank fails.
launch() {
  if [ "$gpus" -lt "$ranks" ] && [ -z "$processes" ]; then
    timeout 600 "$1" --threads "$ranks" "${@:2}"
    return
  fi
  local r pid failed=0
  started=()
  for ((r = 0; r < ranks; r++)); do
    RANK=$r LOCAL_RANK=$r WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=${MASTER_PORT:-29600} \
      timeout 600 "$1" "${@:2}" &
    started+=($!)
  done
  for pid in "${started[@]}"; do wait "$pid" || failed=1; done
  started=()
  return $failed
}

verdict=0
for algorithm in $algorithms; do
  place=$out/$algorithm
  mkdir -p "$place"
  "$python" -m latecomer synth --topology "switch:$ranks@450GB/s" --late "$late" --delay 1s --size 256MiB \
    --algorithm "$algorithm" -o "$place/plan.json" > "$place/synth.txt"
  "$python" -m latecomer export "$place/plan.json" --to nccl -o "$place/project" > "$place/export.txt"
  CAPABILITY=$capability OBJECTS=${OBJECTS:-$out/objects} PROJECT=$place/project "$python" - << 'PYTHON'
import os
from latecomer.runtime.native import build

build(os.environ["PROJECT"], target=os.environ["TARGET"], what="benchmark", cache=os.environ["OBJECTS"],
      architectures=[int(os.environ["CAPABILITY"])])
PYTHON
  bench=$place/project/build-$target/latecomer_bench
  echo "== $algorithm: check"
  launch "$bench" --check ${quick:+--check-count 1001} || { verdict=1; echo "FAILED: $algorithm --check" >&2; continue; }
  echo "== $algorithm: sizes"
  sweep=(--min-bytes $((1 << 16)) --max-bytes "$max_bytes" --delay-us 5000 --json "$place/results.json")
  [ -z "$quick" ] || sweep=(--min-bytes 65536 --max-bytes 65536 --iterations 2 --warmup 0 --delay-us 500 --json "$place/results.json")
  launch "$bench" "${sweep[@]}" || { verdict=1; echo "FAILED: $algorithm sizes" >&2; }
done

OUT=$out MACHINE=$machine GPUS=$gpus RANKS=$ranks VERDICT=$verdict "$python" - << 'PYTHON'
import json
import os
from pathlib import Path

out = Path(os.environ["OUT"])
results = {p.parent.name: json.loads(p.read_text()) for p in sorted(out.glob("*/results.json"))}
several = int(os.environ["GPUS"]) < int(os.environ["RANKS"])
report = {
    "machine": os.environ["MACHINE"].strip("; "),
    "gpus": int(os.environ["GPUS"]),
    "ranks": int(os.environ["RANKS"]),
    "times_mean_something": not several,
    "passed": os.environ["VERDICT"] == "0",
    "plans": results,
}
(out / "gpu_check.json").write_text(json.dumps(report, indent=1) + "\n")
print(f"wrote {out / 'gpu_check.json'}")
PYTHON
exit $verdict
