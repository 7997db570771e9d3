#!/usr/bin/env bash
# Checks and times evenkeel.torch on one NVIDIA GPU in at most 8 minutes: tests/torch/gpu_checks.py.
#
# usage: tools/gpu_torch.sh [all|pack|run] [--out DIR]
#   all   pack, then run, on one machine (the default)
#   pack  needs no GPU: puts wheels of the package into build/wheels, to be copied to a GPU machine that has a checkout
#         of the same commit (tools/wheel.sh; a Python 3.12 or later with headers makes one wheel for all later
#         versions)
#   run   needs a GPU, build/wheels, and a python3 (or $PYTHON) with pip, numpy and torch 2.10 or later for CUDA
#   --out DIR   where figures go (build/gpu_torch): gpu_torch.json, gpu_torch.log
#
# Only our wheel, a few megabytes, is copied. The GPU machine has its own torch, with gigabytes of CUDA libraries that
# fit its driver. pip uses no registry and installs into a temporary folder. The exit status is 0 if all succeeded, 1 if
# a check failed, 2 if there is no wheel, 3 if there is no GPU, 124 after 8 minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly wheels=build/wheels
readonly seconds=480
readonly python=${PYTHON:-python3}

say() { echo "gpu_torch: $*"; }
fail() { say "$1" >&2; exit "$2"; }

pack() {
  tools/wheel.sh
  git rev-parse HEAD >$wheels/commit.txt 2>/dev/null || echo unknown >$wheels/commit.txt
}

run() {
  nvidia-smi -L || fail "no NVIDIA GPU is here; nothing was run" 3
  compgen -G "$wheels/*.whl" >/dev/null || fail "there is no wheel in $wheels; tools/gpu_torch.sh pack makes it" 2
  say "a wheel of commit $(cat $wheels/commit.txt 2>/dev/null || echo unknown)"
  mkdir -p "$out"
  site=$(mktemp -d)
  trap 'rm -rf "$site"' EXIT
  "$python" -m pip install --quiet --no-index --no-deps --no-cache-dir --find-links $wheels --target "$site" evenkeel
  # On a timeout, the traceback shows the lines that hang.
  PYTHONPATH=$site PYTHONUNBUFFERED=1 timeout --signal=ABRT --kill-after=10 $seconds "$python" -X faulthandler \
    tests/torch/gpu_checks.py --device cuda --json "$out/gpu_torch.json" 2>&1 | tee "$out/gpu_torch.log"
}

what=all out=build/gpu_torch
while [ $# -gt 0 ]; do
  case $1 in
    all|pack|run) what=$1 ;;
    --out) out=$2; shift ;;
    *) echo "tools/gpu_torch.sh: unknown argument '$1'; see its first lines" >&2; exit 2 ;;
  esac
  shift
done
case $what in
  all) pack; run ;;
  pack) pack ;;
  run) run ;;
esac
