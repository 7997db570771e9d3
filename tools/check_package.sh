#!/usr/bin/env bash
# Checks that the Python package installs and works: a wheel is installed into an empty environment, and runs the
# package's tests, the README's Python and a strict type check.
# usage: tools/check_package.sh [WHEEL [PYTHON]]
#   WHEEL   made by `make wheel`; installing it needs no compiler and no libraries (default: built here with pip, which
#           needs a compiler and the libraries of tools/setup.sh)
#   PYTHON  the interpreter to install it for (default: python3)
set -euo pipefail
cd "$(dirname "$0")/.."

# A wheel of `make wheel` also contains OpenSSL's libcrypto, which libzip needs.
readonly most_bytes=$((${1:+1500000} + 5000000))
readonly dir=$PWD/build/package
readonly python=$dir/bin/python

# The compiler name that CMake itself finds, so that ccache has the objects of `make build`.
export CC=${CC:-cc} CXX=${CXX:-c++}

rm -rf "$dir"
"${2:-python3}" -m venv "$dir"
wheel=${1:-}
if [ -z "$wheel" ]; then
  "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$dir/wheel" .
  wheel=$(echo "$dir"/wheel/evenkeel-*.whl)
fi
"$python" -m pip install --quiet --disable-pip-version-check "$wheel" mypy

bytes=$(stat -c %s "$wheel")
[ "$bytes" -lt $most_bytes ] || { echo "check_package: the wheel has $bytes bytes, $most_bytes at most" >&2; exit 1; }
echo "check_package: the wheel has $bytes bytes"

command=$PWD/build/release/bin/evenkeel
[ -x "$command" ] || command=
for test in tests/python/*_test.py; do
  (cd tests/python && EVENKEEL_COMMAND=$command "$python" -m unittest "$(basename "$test" .py)")
done
for page in README.md docs/compare.md docs/python.md docs/evaluate.md; do
  "$python" tests/docs/readme_snippets.py run-python $page "$python"
done
# mypy checks for this Python version, since numpy's types depend on it.
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
check_types=("$python" -m mypy --python-version "$version" --no-error-summary)
"${check_types[@]}" --strict tests/python/typed_use.py
"${check_types[@]}" -p evenkeel
# Repeats the check with the types of torch and transformers, if they are installed.
if build/python/bin/python -c 'import importlib.metadata as m; m.version("torch")' 2>/dev/null; then
  MYPYPATH=build/release/python "${check_types[@]}" --python-executable build/python/bin/python -p evenkeel
fi
echo "check_package: the package installs, works and is typed"
