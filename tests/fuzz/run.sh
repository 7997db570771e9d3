#!/usr/bin/env bash
# Runs every fuzz target for some seconds, one target on each core, and prints a line for each target:
#   tests/fuzz/run.sh [SECONDS each, 60] [TARGET...]
# Needs `cmake --preset fuzz && cmake --build --preset fuzz --target fuzz_targets`. Crashing inputs are kept in
# build/fuzz/found/. A run fails on a crash, a hang (10 s), one allocation above 64 MiB or 512 MiB in all, a long error
# message, or more memory or time than target.cpp allows for the input's length.
set -u
cd "$(dirname "$0")/../.."
seconds=${1:-60}
shift
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(safetensors npy npz json trace checkpoint pickle recording foreign topology trained_layer cost)

fuzz() {
  local target=$1 seconds=$2 status=0
  local program=build/fuzz/bin/fuzz_$target
  [ -x "$program" ] || { echo "$program is missing; build the fuzz preset first" >&2; return 1; }
  local work=build/fuzz/corpus/$target found=build/fuzz/found/$target log=build/fuzz/$target.log
  mkdir -p "$work" "$found"
  local begin took runs edges
  begin=$(date +%s)
  "$program" -max_total_time="$seconds" -timeout=10 -malloc_limit_mb=64 -rss_limit_mb=512 -max_len=8192 \
    -artifact_prefix="$found/" -print_final_stats=1 -verbosity=1 "$work" "tests/fuzz/corpus/$target" >"$log" 2>&1 || status=1
  took=$(($(date +%s) - begin))
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
  printf '%-12s %14s %9s %9s %9s %9s\n' "$target" "${runs:-?}" "$took" "$((${runs:-0} / (took > 0 ? took : 1)))" \
    "${edges:-?}" "$(find "$found" -type f | wc -l)"
  return $status
}
export -f fuzz

printf '%-12s %14s %9s %9s %9s %9s\n' target executions seconds per_sec edges crashes
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I '{}' bash -c 'fuzz "$1" "$2"' fuzz '{}' "$seconds"
