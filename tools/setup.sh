#!/usr/bin/env bash
# Installs what is missing to build, test and check evenkeel on Debian 12, Ubuntu 24.04 and later.
#
# usage: tools/setup.sh [build|highs|bench|wheel|pages|lint|fuzz|python|frameworks|nccl|all]...      (default: build highs)
#   build   compiler, CMake, Ninja and the libraries that `make build`, `demo` and `test` need
#   highs   the integer-program solver of `place --solver exact`, built from source into build/highs; if it cannot be
#           installed, a message says so, and evenkeel builds without it
#   bench   what `make bench` needs in addition
#   wheel   Python's headers and tools for virtual environments, for `make wheel`
#   pages   Chromium (80 MB to download), and axe in build/pages, for the tests of --html pages
#   lint    clang-format, and in build/tools clang-tidy and ruff
#   fuzz    clang with its sanitizer runtime
#   python  Python's headers, and in build/python nanobind, numpy and scikit-build-core for the package's tests, and
#           PyTorch (CPU), transformers and what their tests need; if these cannot be installed, their tests are
#           skipped. Also iproute2, for ranks on two nodes
#   frameworks  torchtitan and Megatron-Core in build/frameworks, which use the PyTorch of build/python, for the
#           tests of the pages about them; nothing without PyTorch
#   nccl    NCCL in build/nccl, for ranks that have one GPU each; nothing without nvcc
# Running it again takes a moment and changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly clang=16
readonly ruff=0.17.6
readonly clang_tidy=23.1.4  # Debian's version also checks the standard library's headers, which takes twice the time
readonly tools_dir=build/tools
readonly highs=1.11.0
readonly highs_sha256=771e58c076122d207ff1b19759c21d3227f0da5b80dfd89a4145681524969cef
readonly highs_packer=1.1.2  # a version of scikit-build-core, which pip needs before it downloads the archive
readonly highs_dir=${EVENKEEL_HIGHS_ROOT:-build/highs}
readonly python_dir=build/python
readonly torch=2.13.0+cpu  # only CPU builds have this version; CUDA builds take several GB
readonly frameworks_dir=build/frameworks
readonly frameworks=(torchtitan==0.3.0 megatron-core==0.16.1 triton)  # the versions that docs/ mentions
readonly nccl_dir=build/nccl
readonly pages_dir=build/pages
readonly axe_package=axe-playwright-python==0.1.8  # contains axe-core
readonly axe_sha256=fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8

say() { echo "setup: $*"; }
fail() { say "$@" >&2; exit 1; }

# A library is present if its package is installed; a tool is present if it can be called, wherever it came from.
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
  for name in libbenchmark-dev libcli11-dev libdnnl-dev libfmt-dev libgmock-dev libgtest-dev libyaml-dev \
              libopenmpi-dev libzip-dev nlohmann-json3-dev openmpi-bin zlib1g-dev; do
    package "$name"
  done
  package node-d3  # draws --html pages
  # Debian's oneDNN needs OpenCL even on the CPU, but its package does not depend on it.
  package ocl-icd-opencl-dev
}

want_highs() {
  want_build
  has_highs || python3 -c 'import ensurepip, venv' 2>/dev/null || package python3-venv
}

want_bench() { package libopenblas-dev; }

want_pages() {
  tool chromium chromium chromium-browser google-chrome
  package fonts-dejavu-core
  has_axe || python3 -c 'import ensurepip, venv' 2>/dev/null || package python3-venv
}

want_lint() {
  tool clang-format-$clang clang-format-$clang clang-format
  has_linters || python3 -c 'import ensurepip, venv' 2>/dev/null || package python3-venv
}

want_fuzz() {
  tool clang-$clang clang++-$clang clang++
  package libclang-rt-$clang-dev
}

want_wheel() {
  tool python3 python3
  python3 -c 'import ensurepip, venv' 2>/dev/null || package python3-venv
  python3 -c 'import sysconfig; open(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null || package python3-dev
}

want_python() {
  want_wheel
  tool iproute2 ip  # for tools/hosts.py
}

want_frameworks() { want_python; }

want_nccl() {
  ! command -v nvcc >/dev/null || python3 -c 'import ensurepip, venv' 2>/dev/null || package python3-venv
}

# Sets `as_root` to the command prefix that gives root rights, or says what to ask an administrator for.
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

# Debian and Ubuntu have different clang versions, but both have packages without a version number. Packages that only
# pages need may be missing.
replace_unknown_packages() {
  local i
  for i in "${!missing[@]}"; do
    apt-cache show "${missing[i]}" >/dev/null 2>&1 && continue
    case ${missing[i]} in
      node-d3 | chromium) say "there is no package ${missing[i]} here; going on without it"; unset 'missing[i]' ;;
      *) missing[i]=${missing[i]/-$clang/} ;;
    esac
  done
}

install_missing() {
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null || fail "there is no apt-get here. Install what these Debian packages hold:
  ${missing[*]}"
  become_root
  say "installing ${missing[*]}"
  # A package source that does not answer matters only if it has a package that we need.
  "${as_root[@]}" apt-get update -qq || say "some package sources could not be read; going on with the others"
  replace_unknown_packages
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    fail "apt-get could not install ${missing[*]}"
  did=1
}

has_linters() {
  "$tools_dir/bin/ruff" --version 2>/dev/null | grep -qF "ruff $ruff" &&
    "$tools_dir/bin/clang-tidy" --version 2>/dev/null | grep -qF "version $clang_tidy"
}

install_linters() {
  has_linters && return
  say "installing ruff $ruff and clang-tidy $clang_tidy into $tools_dir"
  [ -x "$tools_dir/bin/pip" ] || python3 -m venv "$tools_dir"
  "$tools_dir/bin/pip" install --quiet --disable-pip-version-check "ruff==$ruff" "clang-tidy==$clang_tidy" ||
    fail "pip could not install ruff $ruff and clang-tidy $clang_tidy"
  did=1
}

has_highs() {
  grep -qs "PACKAGE_VERSION \"$highs\"" "$highs_dir"/lib*/cmake/highs/highs-config-version.cmake
}

# All output goes to log files, and all files to a temporary folder, so that a failure leaves a log and nothing half
# installed.
install_highs() {
  has_highs && return
  local work=build/highs-work start=$SECONDS
  rm -rf "$work" && mkdir -p "$work"
  if ! fetch_highs "$work" >"$work/log" 2>&1; then
    say "HiGHS $highs could not be fetched (see $work/log); going on without exact placement. Try again later with:
  tools/setup.sh highs"
    return
  fi
  say "building HiGHS $highs into $highs_dir, some minutes"
  build_highs "$work" >>"$work/log" 2>&1 || fail "HiGHS could not be built; see $work/log"
  rm -rf "$work"
  say "HiGHS took $((SECONDS - start)) s"
  did=1
}

# The archive of the Python package contains the C++ sources; pip checks the archive's hash.
fetch_highs() {
  local work=$1
  python3 -m venv "$work/pip" &&
    "$work/pip/bin/pip" install --disable-pip-version-check "scikit-build-core==$highs_packer" &&
    echo "highspy==$highs --hash=sha256:$highs_sha256" >"$work/requirements" &&
    "$work/pip/bin/pip" download --disable-pip-version-check --no-deps --no-binary highspy --no-build-isolation \
      --require-hashes --requirement "$work/requirements" --dest "$work" &&
    tar -xzf "$work/highspy-$highs.tar.gz" -C "$work"
}

build_highs() {
  local sources=$1/highspy-$highs
  # Files that the build needs and the archive lacks.
  mkdir -p "$sources/app" "$sources/check" && touch "$sources/app/CMakeLists.txt" "$sources/check/CMakeLists.txt"
  [ -e "$sources/highs.pc.in" ] || touch "$sources/highs.pc.in"
  # Compiles several sources at a time, which halves the time; the sources listed here cannot be combined.
  cat >>"$sources/highs/CMakeLists.txt" <<'END'
set_source_files_properties(${basiclu_sources} ${cupdlp_sources} ../extern/filereaderlp/reader.cpp
                            PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
END
  cmake -S "$sources" -B "$1/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
    -DCMAKE_UNITY_BUILD=ON \
    -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_INSTALL_PREFIX="$1/prefix" \
    -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF -DBUILD_CXX_EXE=OFF -DBUILD_EXAMPLES=OFF -DZLIB=OFF &&
    cmake --build "$1/build" && cmake --install "$1/build" &&
    install -Dm644 "$sources/LICENSE.txt" "$1/prefix/share/doc/highs/LICENSE.txt" &&
    rm -rf "$highs_dir" && mkdir -p "$(dirname "$highs_dir")" && mv "$1/prefix" "$highs_dir"
}

install_python() {
  install_bindings
  has_torch && return
  say "installing PyTorch $torch and transformers into $python_dir"
  if install_torch >/dev/null 2>&1; then
    did=1
  else
    say "pip could not install PyTorch $torch and transformers; their tests are skipped (again: tools/setup.sh python)"
  fi
}

install_bindings() {
  "$python_dir/bin/python" -c 'import nanobind, numpy, scikit_build_core' 2>/dev/null && return
  say "installing nanobind, numpy and scikit-build-core into $python_dir"
  [ -x "$python_dir/bin/pip" ] || python3 -m venv "$python_dir"
  "$python_dir/bin/pip" install --quiet --disable-pip-version-check "nanobind>=2.4" "numpy>=1.24" \
    "scikit-build-core>=0.10" ||
    fail "pip could not install nanobind, numpy and scikit-build-core"
  did=1
}

# Looks at pip's records, since importing the packages takes seconds.
has_torch() {
  "$python_dir/bin/python" - 2>/dev/null <<'END'
from importlib.metadata import version
for package in ("torch", "accelerate", "matplotlib", "peft", "tensorboard", "tqdm"):
    version(package)
raise SystemExit([int(part) for part in version("transformers").split(".")[:2]] < [5, 23])
END
}

# Prefers the configured package indexes; PyPI itself has no such build.
install_torch() {
  local pip=("$python_dir/bin/pip" install --quiet --disable-pip-version-check)
  "${pip[@]}" "torch==$torch" ||
    "${pip[@]}" "torch==$torch" --extra-index-url https://download.pytorch.org/whl/cpu || return
  "${pip[@]}" "transformers>=5.23" accelerate matplotlib peft tensorboard tqdm
}

# This environment sees the packages of build/python, so that PyTorch is not downloaded again.
install_frameworks() {
  has_torch || { say "there is no PyTorch in $python_dir, so torchtitan and Megatron-Core are left out"; return; }
  "$frameworks_dir/bin/python" -c 'import importlib.metadata as m; m.version("triton")' 2>/dev/null && return
  say "installing ${frameworks[*]} into $frameworks_dir"
  "$python_dir/bin/python" -m venv "$frameworks_dir"
  realpath "$python_dir"/lib/python3*/site-packages >"$(echo "$frameworks_dir"/lib/python3*/site-packages)/torch.pth"
  if "$frameworks_dir/bin/pip" install --quiet --disable-pip-version-check "${frameworks[@]}"; then
    did=1
  else
    say "pip could not install ${frameworks[*]}; going on without their tests. Try again later with:
  tools/setup.sh frameworks"
  fi
}

# NCCL's Python package has CUDA's major version in its name.
install_nccl() {
  local cuda
  cuda=$(nvcc --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
  [ -n "$cuda" ] || { say "there is no nvcc here, so NCCL is left out"; return; }
  ! compgen -G "$nccl_dir/lib/python3*/site-packages/nvidia/nccl/include/nccl.h" >/dev/null || return 0
  say "installing nvidia-nccl-cu$cuda into $nccl_dir"
  [ -x "$nccl_dir/bin/pip" ] || python3 -m venv "$nccl_dir"
  if "$nccl_dir/bin/pip" install --quiet --disable-pip-version-check "nvidia-nccl-cu$cuda"; then
    did=1
  else
    say "pip could not install nvidia-nccl-cu$cuda; going on without ranks on NCCL. Try again later with:
  tools/setup.sh nccl"
  fi
}

has_axe() { [ -e "$pages_dir/axe.min.js" ]; }

# Only one file of the wheel is kept.
install_pages() {
  has_axe && return
  say "installing axe-core into $pages_dir"
  local work=$pages_dir/work
  rm -rf "$work" && mkdir -p "$work"
  if fetch_axe "$work" >"$work/log" 2>&1; then
    mv "$work/axe.min.js" "$pages_dir/" && rm -rf "$work"
    did=1
  else
    say "axe-core could not be fetched (see $work/log); pages are tested without it. Try again later with:
  tools/setup.sh pages"
  fi
}

fetch_axe() {
  python3 -m venv "$1/pip" && echo "$axe_package --hash=sha256:$axe_sha256" >"$1/requirements" &&
    "$1/pip/bin/pip" download --disable-pip-version-check --no-deps --require-hashes --requirement "$1/requirements" \
      --dest "$1" &&
    python3 -c 'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read(
      "axe_playwright_python/axe.min.js"))' "$1"/axe_playwright_python-*.whl >"$1/axe.min.js"
}

check_cmake() {
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*//p')
  [ "$(printf '3.25\n%s\n' "$version" | sort -V | head -1)" = 3.25 ] ||
    fail "CMake 3.25 or later is needed, and this is $version (a newer one: pip install cmake)"
}

[ $# -gt 0 ] || set -- build highs
[ "$*" != all ] || set -- build highs bench wheel pages lint fuzz python frameworks nccl
did=
for part in "$@"; do
  case $part in
    build | highs | bench | wheel | pages | lint | fuzz | python | frameworks | nccl) "want_$part" ;;
    *) fail "unknown part '$part'; one of build, highs, bench, wheel, pages, lint, fuzz, python, frameworks, nccl, all" ;;
  esac
done
install_missing
for part in "$@"; do
  [[ $part != build && $part != highs ]] || check_cmake
  [ "$part" != highs ] || install_highs
  [ "$part" != pages ] || install_pages
  [ "$part" != lint ] || install_linters
  [ "$part" != python ] || install_python
  [ "$part" != frameworks ] || install_frameworks
  [ "$part" != nccl ] || install_nccl
done
say "$* ready${did:+, new packages installed}"
