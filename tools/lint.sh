#!/usr/bin/env bash
# Everything that is checked without running: formatting, include directions, clang-tidy, ruff.
# usage: tools/lint.sh [--fix]      (--fix rewrites what can be rewritten and checks nothing else)
# clang-tidy reads build/release/compile_commands.json, which `make lint` provides; without it lint is not clean.
set -euo pipefail
cd "$(dirname "$0")/.."

# clang tools carry a version in their name on Debian; 16 is the one the configuration is written for.
newest() {
  local version
  for version in -16 "" -17 -18 -19; do
    command -v "$1$version" && return
  done
  echo "lint: $1 is missing; tools/setup.sh lint installs it" >&2
  return 1
}

clang_format=$(newest clang-format)
clang_tidy=$(newest clang-tidy)
ruff=build/tools/bin/ruff
[ -x "$ruff" ] || ruff=ruff

# What git knows or would add, and is there.
cpp_files() {
  local file
  git ls-files -z --cached --others --exclude-standard -- "$@" |
    while IFS= read -r -d '' file; do
      if [ -e "$file" ]; then printf '%s\0' "$file"; fi
    done
}

if [ "${1:-}" = --fix ]; then
  cpp_files '*.h' '*.cpp' '*.inl' '*.cu' '*.cuh' | xargs -0 -r "$clang_format" -i
  "$ruff" check --quiet --fix .
  exec "$ruff" format --quiet .
fi

failed=()
check() {
  local name=$1 start=$SECONDS
  shift
  if "$@"; then echo "lint: $name is clean ($((SECONDS - start)) s)"; else failed+=("$name"); fi
}

format_is_kept() { cpp_files '*.h' '*.cpp' '*.inl' '*.cu' '*.cuh' | xargs -0 -r "$clang_format" --dry-run -Werror; }
python_is_clean() { "$ruff" check --quiet . && "$ruff" format --quiet --check .; }
# How sources are compiled, without the compiler's own precompiled headers.
database=build/lint
plain_commands() {
  mkdir -p "$database"
  sed -E 's/ -Winvalid-pch -include [^ "]+//; s/ -fpch-preprocess//' build/release/compile_commands.json \
    >"$database/compile_commands.json"
}
# Sources that this machine compiles: one of a pair is left out where a library is there or not.
compiled() {
  local file
  while IFS= read -r -d '' file; do
    if grep -qF "/$file\"" "$database/compile_commands.json"; then printf '%s\0' "$file"; fi
  done
}

# clang counts the warnings it suppressed in headers of others; those counts are not findings.
tidy_is_clean() {
  if [ ! -e build/release/compile_commands.json ]; then
    echo "lint: build/release/compile_commands.json is missing, which says how sources are compiled;" \
      "\`cmake --preset release\` makes it" >&2
    return 1
  fi
  plain_commands
  cpp_files 'evenkeel/*.cpp' 'cli/*.cpp' | compiled |
    xargs -0 -r -n 1 -P "$(nproc)" "$clang_tidy" --quiet -p "$database" 2> >(grep -v 'warnings generated' >&2)
}

check clang-format format_is_kept
check "include directions" tools/check_includes.py
check ruff python_is_clean
check clang-tidy tidy_is_clean
[ ${#failed[@]} -eq 0 ] || { echo "lint: not clean: ${failed[*]}" >&2; exit 1; }
