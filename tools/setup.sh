#!/usr/bin/env bash
# Installs what is missing to build, test and check evenkeel on Debian 12, Ubuntu 24.04 and later.
#
# usage: tools/setup.sh [build|bench|lint|fuzz|all]...      (default: build)
#   build   compiler, CMake, Ninja and the libraries that `make build`, `demo` and `test` need
#   bench   what `make bench` needs besides
#   lint    clang-format, clang-tidy (with clang's omp.h) and ruff
#   fuzz    clang with its sanitizer runtime
# Running it again takes a moment and changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly clang=16
readonly ruff=0.17.6
readonly tools_dir=build/tools

say() { echo "setup: $*"; }
fail() { say "$@" >&2; exit 1; }

# A library is present when its package is; a tool when it can be called, since CMake may well come from pip.
missing=()
package() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ] || missing+=("$1")
}
tool() {
  local name package=$1; shift
  for name in "$@"; do command -v "$name" >/dev/null && return; done
  missing+=("$package")
}

want_build() {
  tool g++ g++
  tool make make
  tool cmake cmake
  tool ninja-build ninja
  tool ccache ccache
  tool git git
  tool pkg-config pkg-config
  tool python3 python3
  local name
  for name in libbenchmark-dev libcli11-dev libdnnl-dev libfmt-dev libgmock-dev libgtest-dev libzip-dev \
              nlohmann-json3-dev zlib1g-dev; do
    package "$name"
  done
  # Debian's oneDNN looks for OpenCL wherever it is used, on the CPU as well, and does not depend on it.
  package ocl-icd-opencl-dev
}

want_bench() { package libopenblas-dev; }

want_lint() {
  tool clang-format-$clang clang-format-$clang clang-format
  tool clang-tidy-$clang clang-tidy-$clang clang-tidy
  package libomp-$clang-dev  # clang's own omp.h; g++'s is not for it
  has_ruff || python3 -c 'import ensurepip, venv' 2>/dev/null || package python3-venv
}

want_fuzz() {
  tool clang-$clang clang++-$clang clang++
  package libclang-rt-$clang-dev
}

# Sets `as_root` to what makes a command run as root, or explains what to ask an administrator for.
become_root() {
  as_root=()
  [ "$(id -u)" = 0 ] && return
  if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    as_root=(sudo)
    return
  fi
  fail "these packages are missing, and installing them needs root. Ask for:
  apt-get install ${missing[*]}"
}

# Debian and Ubuntu carry different clang versions; their packages without a number always exist.
replace_unknown_packages() {
  local i
  for i in "${!missing[@]}"; do
    apt-cache show "${missing[i]}" >/dev/null 2>&1 || missing[i]=${missing[i]/-$clang/}
  done
}

install_missing() {
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null || fail "there is no apt-get here. Install what these Debian packages hold:
  ${missing[*]}"
  become_root
  say "installing ${missing[*]}"
  # A source that does not answer matters only if it is the one that holds a package.
  "${as_root[@]}" apt-get update -qq || say "some package sources could not be read; going on with the others"
  replace_unknown_packages
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    fail "apt-get could not install ${missing[*]}"
  did=1
}

has_ruff() {
  local found
  for found in "$tools_dir/bin/ruff" ruff; do
    [ "$("$found" --version 2>/dev/null)" = "ruff $ruff" ] && return
  done
  return 1
}

install_ruff() {
  has_ruff && return
  say "installing ruff $ruff into $tools_dir"
  [ -x "$tools_dir/bin/pip" ] || python3 -m venv "$tools_dir"
  "$tools_dir/bin/pip" install --quiet --disable-pip-version-check "ruff==$ruff" ||
    fail "pip could not install ruff $ruff; any other way to have that version on PATH will do"
  did=1
}

check_cmake() {
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*//p')
  [ "$(printf '3.25\n%s\n' "$version" | sort -V | head -1)" = 3.25 ] ||
    fail "CMake 3.25 or later is needed, and this is $version (a newer one: pip install cmake)"
}

[ $# -gt 0 ] || set -- build
[ "$*" != all ] || set -- build bench lint fuzz
did=
for part in "$@"; do
  case $part in
    build | bench | lint | fuzz) "want_$part" ;;
    *) fail "unknown part '$part'; one of build, bench, lint, fuzz, all" ;;
  esac
done
install_missing
for part in "$@"; do
  [ "$part" != build ] || check_cmake
  [ "$part" != lint ] || install_ruff
done
say "$* ready${did:+, new packages installed}"
