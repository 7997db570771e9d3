#!/usr/bin/env bash
# Installs PyTorch (CPU) and transformers into build/peers, for the tests that compare with them (tests/peers). `make
# test` does not call this script, since the two take about 1.5 GB. Without them those tests are skipped.
#
# usage: tools/peers.sh [transformers version]      (default: the one of docs/checkpoints.md)
set -euo pipefail
cd "$(dirname "$0")/.."

readonly torch=2.13.0
readonly transformers=${1:-5.23.0}
readonly folder=build/peers

[ -x "$folder/bin/pip" ] || python3 -m venv "$folder"
# This index has builds without CUDA. If it cannot be reached, the ordinary builds work too.
"$folder/bin/pip" install --quiet --disable-pip-version-check --index-url https://download.pytorch.org/whl/cpu \
  "torch==$torch" 2>/dev/null || "$folder/bin/pip" install --quiet --disable-pip-version-check "torch==$torch"
"$folder/bin/pip" install --quiet --disable-pip-version-check numpy safetensors "transformers==$transformers"
echo "peers: torch $torch and transformers $transformers are in $folder"
