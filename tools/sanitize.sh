#!/usr/bin/env bash
# Runs the concurrent tests under ThreadSanitizer, and the tests of parsing under AddressSanitizer and UBSan. usage:
# tools/sanitize.sh [tsan|asan]...      (default: both)
set -euo pipefail
cd "$(dirname "$0")/.."

# ThreadSanitizer needs a fixed address range, which the kernel's address randomization may have used.
fixed_addresses=()
if setarch "$(uname -m)" -R true 2>/dev/null; then fixed_addresses=(setarch "$(uname -m)" -R); fi

run() {
  local preset=$1 label=$2
  shift 2
  cmake --preset "$preset" "$@" >/dev/null
  # CMake creates the target only if a test has the label.
  cmake --build --preset "$preset" --target "tests_$label"
  "${fixed_addresses[@]}" ctest --preset "$preset" --parallel "$(nproc)"
}

[ $# -gt 0 ] || set -- tsan asan
for preset in "$@"; do
  case $preset in
    tsan) run tsan concurrent ;;
    # The fuzz build has both sanitizers, and the fuzz targets reuse its objects.
    asan) run fuzz parsing ;;
    *) echo "tools/sanitize.sh: unknown sanitizer '$preset'; tsan or asan" >&2; exit 2 ;;
  esac
done
