#!/usr/bin/env bash
# Runs everything that needs an NVIDIA GPU: builds, runs every GPU test, plain and under compute-sanitizer, runs the GPU
# benchmarks, and writes the results to files.
#
# usage: tools/gpu.sh [all|build|run] [--out DIR] [--quick] [--tests|--benchmarks]
#   all    build, then run, on one machine (the default)
#   build  needs nvcc but no GPU: programs and the libraries they need go to build/gpu and into one archive,
#          build/gpu.tar.gz, which can be copied to a machine with a GPU that has a checkout
#   run    needs a GPU, python3, and build/gpu or the archive; uses compute-sanitizer and torch if installed
#   --out DIR      where figures go (build/gpu/figures): summary.json, figures.json, logs.tar.gz
#   --quick        no compute-sanitizer
#   --tests        only the tests; --benchmarks: only the benchmarks
#
# benchmarks/cuda/programs.txt lists the benchmarks, one a line: a name and a command. Each program may take 600 s. The
# exit status is 0 if all succeeded, 1 if something failed, 3 if there is no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly build=build/release
readonly packed=build/gpu
readonly archive=build/gpu.tar.gz
readonly list=benchmarks/cuda/programs.txt
readonly seconds_a_program=600
readonly sanitizers="memcheck racecheck synccheck"

say() { echo "gpu: $*"; }

# "name command..." of each benchmark, with {bin} and {source} filled in.
benchmarks() {
  [ -e $list ] || return 0
  grep -v '^[[:space:]]*\(#\|$\)' $list | sed "s|{bin}|$packed/bin|g; s|{source}|$PWD|g; s|{out}|$out|g"
}

# The libraries that another machine may lack: all except the C and C++ run time.
libraries_of() {
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// && $1 !~ /^(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+)\.so/ {print $3}' |
    sort -u
}

build() {
  cmake --preset release -DEVENKEEL_CUDA=ON -DEVENKEEL_PYTHON=OFF
  local tests programs
  tests=$(ctest --test-dir $build --show-only=json-v1 -L '^gpu$' |
    python3 -c 'import json,sys; print(*(test["name"] for test in json.load(sys.stdin)["tests"]))')
  programs=$(grep -o '{bin}/[A-Za-z0-9_]*' $list 2>/dev/null | sed 's|{bin}/||' | sort -u || true)
  # shellcheck disable=SC2086
  cmake --build $build --target $tests $programs
  rm -rf $packed $archive
  mkdir -p $packed/bin $packed/lib
  local program
  for program in $tests $programs; do
    cp $build/bin/"$program" $packed/bin/
    strip $packed/bin/"$program"
  done
  echo "$tests" | tr ' ' '\n' >$packed/tests.txt
  libraries_of $packed/bin/* | xargs -r cp -L -t $packed/lib
  git rev-parse HEAD >$packed/commit.txt 2>/dev/null || echo unknown >$packed/commit.txt
  tar -C build -czf $archive gpu
  say "$(wc -l <$packed/tests.txt) test programs and $(echo "$programs" | wc -w) benchmarks in $packed;" \
    "$(du -h $archive | cut -f1) in $archive"
}

# step KIND NAME LOG COMMAND...: runs the command with a time limit and records its result.
step() {
  local kind=$1 name=$2 log=$logs/$3 start=$SECONDS status=0
  shift 3
  timeout $seconds_a_program "$@" >"$log" 2>&1 </dev/null || status=$?
  local skipped
  skipped=$(grep -c '^\[  SKIPPED \].*ms)$' "$log" || true)
  printf '%s\t%s\t%s\t%s\t%s\n' "$kind" "$name" $status $((SECONDS - start)) "$skipped" >>"$notes"
  if [ $status = 0 ]; then
    say "$kind $name: passed, $((SECONDS - start)) s, $skipped skipped"
  else
    failed=$((failed + 1))
    say "$kind $name: failed with status $status after $((SECONDS - start)) s; the end of its log:"
    tail -n 25 "$log"
  fi
}

# Leak checks would report memory that CUDA keeps until the process ends. Errors returned by CUDA calls are not faults:
# tests request more memory than there is, and NCCL tries which of its kernels the GPU supports.
sanitize() {
  local tool=$1 name=$2 options=()
  [ "$tool" != memcheck ] || options=(--report-api-errors no)
  step "$tool" "$name" "$name.$tool.log" compute-sanitizer --tool "$tool" "${options[@]}" --error-exitcode 99 \
    --print-limit 20 $packed/bin/"$name" --gtest_filter="${EVENKEEL_SANITIZER_FILTER:-*}"
}

run_tests() {
  local name tool
  while IFS= read -r name; do
    step test "$name" "$name.log" $packed/bin/"$name" --gtest_output="json:$figures/$name.test.json"
  done <$packed/tests.txt
  $quick && return
  if ! command -v compute-sanitizer >/dev/null; then
    say "compute-sanitizer is not here: the tests ran without it"
    return
  fi
  for tool in $sanitizers; do
    while IFS= read -r name; do sanitize "$tool" "$name"; done <$packed/tests.txt
  done
}

run_benchmarks() {
  local name command
  while read -r name command; do
    # shellcheck disable=SC2086
    step benchmark "$name" "$name.log" $command
  done < <(benchmarks)
}

# Puts all results into three files, which are easy to copy back from any machine.
gather() {
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,power.limit --format=csv,noheader \
    >"$logs/gpu.txt" 2>&1 || true
  tar -C "$(dirname "$logs")" -czf "$out/logs.tar.gz" "$(basename "$logs")"
  python3 - "$notes" "$figures" "$logs/gpu.txt" $packed/commit.txt "$out" <<'PYTHON'
import datetime
import json
import pathlib
import sys

notes, figures, gpu, commit, out = map(pathlib.Path, sys.argv[1:])
fields = ("kind", "name", "status", "seconds", "skipped")
steps = [dict(zip(fields, line.split("\t"))) for line in notes.read_text().splitlines()]
for step in steps:
    step.update({key: int(step[key]) for key in ("status", "seconds", "skipped")})
summary = {
    "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    "commit": commit.read_text().strip(),
    "gpu": gpu.read_text().strip(),
    "failed": sum(step["status"] != 0 for step in steps),
    "steps": steps,
}
(out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
read = {}
for path in sorted(figures.glob("*.json")):
    try:
        read[path.stem] = json.loads(path.read_text())
    except ValueError as error:
        read[path.stem] = {"error": str(error)}
(out / "figures.json").write_text(json.dumps(read, indent=1) + "\n")
PYTHON
}

run() {
  if [ ! -d $packed ] && [ -e $archive ]; then tar -C build -xzf $archive; fi
  [ -d $packed ] || { say "there is no $packed; tools/gpu.sh build makes it" >&2; exit 2; }
  nvidia-smi -L >/dev/null 2>&1 || { say "no NVIDIA GPU is here; nothing was run" >&2; exit 3; }
  export LD_LIBRARY_PATH=$PWD/$packed/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  local final=$out
  mkdir -p "$final"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  figures=$work/figures logs=$work/logs notes=$work/notes
  mkdir "$figures" "$logs"
  : >"$notes"
  if $tests; then run_tests; fi
  out=$figures
  if $benches; then run_benchmarks; fi
  out=$final
  gather
  say "summary.json, figures.json and logs.tar.gz are in $out"
  [ $failed = 0 ] || { say "$failed steps failed"; exit 1; }
}

what=all out=$packed/figures quick=false tests=true benches=true failed=0
while [ $# -gt 0 ]; do
  case $1 in
    all|build|run) what=$1 ;;
    --out) out=$2; shift ;;
    --quick) quick=true ;;
    --tests) benches=false ;;
    --benchmarks) tests=false ;;
    *) echo "tools/gpu.sh: unknown argument '$1'; see its first lines" >&2; exit 2 ;;
  esac
  shift
done
case $what in
  all) build; run ;;
  build) build ;;
  run) run ;;
esac
