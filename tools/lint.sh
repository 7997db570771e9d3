#!/usr/bin/env bash
# All checks that do not run the code: formatting, include directions, clang-tidy, ruff, the pages' sentences. usage:
# tools/lint.sh [--fix]      (--fix rewrites what can be rewritten and checks nothing else) clang-tidy reads compile
# commands from build/lint, which is configured for it; if they are missing, lint fails.
set -euo pipefail
cd "$(dirname "$0")/.."

missing() {
  echo "lint: $1 is missing; tools/setup.sh lint installs it" >&2
  exit 1
}

# Debian's clang-format has its version in its name; the configuration is written for version 16.
clang_format=$(command -v clang-format-16 || command -v clang-format) || missing clang-format
clang_tidy=build/tools/bin/clang-tidy
ruff=build/tools/bin/ruff
for tool in "$clang_tidy" "$ruff"; do [ -x "$tool" ] || missing "$tool"; done

# Files that git tracks, or would add, and that exist.
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
sentences_are_short() {
  local said
  said=$(tools/sentence_lengths.py --check --longest 20) || { echo "$said" >&2; return 1; }
}
tidy_is_clean() {
  local commands=build/lint/compile_commands.json
  # Without unity builds, since a unity build has one compile command for several sources.
  cmake --preset release -B build/lint -DEVENKEEL_UNITY=OFF >/dev/null || return 1
  if [ ! -e "$commands" ]; then
    echo "lint: $commands is missing; clang-tidy needs its compile commands" >&2
    return 1
  fi
  cpp_files 'evenkeel/*.cpp' 'cli/*.cpp' | xargs -0 -r tools/tidy.py "$clang_tidy" "$commands"
}

check clang-format format_is_kept
check "include directions" tools/check_includes.py
check "reads of devices" tools/check_reads.py
check "drawing of folders" tools/draw_folders.py --check
check ruff python_is_clean
check sentences sentences_are_short
check clang-tidy tidy_is_clean
[ ${#failed[@]} -eq 0 ] || { echo "lint: not clean: ${failed[*]}" >&2; exit 1; }
