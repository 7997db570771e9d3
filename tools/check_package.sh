#!/usr/bin/env bash
# Whether the Python package installs and works: a wheel is installed into an empty environment, where the package's
# tests, the README's Python and a strict type check run.
# usage: tools/check_package.sh [WHEEL [PYTHON]]
#   WHEEL   of `make wheel`, which needs neither a compiler nor libraries (default: built here with pip, which needs a
#           compiler and the libraries of tools/setup.sh)
#   PYTHON  the interpreter to install it for (default: python3)
set -euo pipefail
cd "$(dirname "$0")/.."

# A wheel of `make wheel` holds OpenSSL's libcrypto besides, which libzip needs.
readonly most_bytes=$((${1:+1500000} + 5000000))
readonly dir=$PWD/build/package
readonly python=$dir/bin/python

# The name that CMake itself finds: ccache then knows what `make build` compiled.
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
# As of the interpreter's version, which numpy's types are for.
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
check_types=("$python" -m mypy --python-version "$version" --no-error-summary)
"${check_types[@]}" --strict tests/python/typed_use.py
"${check_types[@]}" -p evenkeel
# Once more with the types of torch and transformers, where they are.
if build/python/bin/python -c 'import importlib.metadata as m; m.version("torch")' 2>/dev/null; then
  MYPYPATH=build/release/python "${check_types[@]}" --python-executable build/python/bin/python -p evenkeel
fi
echo "check_package: the package installs, works and is typed"
