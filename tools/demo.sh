#!/usr/bin/env bash
# Shows what balancing gains on the shipped trace and trained layer; takes under a minute.
#
# usage: tools/demo.sh [COMMAND]      (default: build/release/bin/evenkeel)
set -euo pipefail
command=$(realpath "${1:-build/release/bin/evenkeel}")
cd "$(dirname "$0")/.."

show() {
  echo "\$ evenkeel $*"
  "$command" "$@"
  echo
}

# The imbalance of the routing in every layer.
show profile data/tiny-moe/routing_step1563.npz --ranks 8
# Expert homes for every layer, placed from the whole trace.
show place data/tiny-moe/routing_step1563.npz --ranks 8 --nodes 2
# One layer, forward and backward: under three planners, then in half the memory of plain ep, then with homes placed
# from other sequences.
show demo --data data/tiny-moe
# All methods in every step and layer, on ranks as fast as this machine's cores; the page shows the result.
mkdir -p build
show bench --calibrate build/demo_cost.json --hidden 256 --intermediate 160 --experts 32
compare=(compare data/tiny-moe/routing_step50.npz --ranks 8 --nodes 2 --model data/tiny-moe/config.json
  --cost build/demo_cost.json --min-segment 16)
show "${compare[@]}" --html build/demo.html || show "${compare[@]}" # a build without d3 has no pages
if [ -e build/demo.html ]; then echo "The page of all this: file://$PWD/build/demo.html"; fi
