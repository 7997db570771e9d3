#!/usr/bin/env bash
# mpirun for tests: allows root, and more ranks than cores; uses only this host, and prints no warnings.
set -euo pipefail

[ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --mca btl_base_warn_component_unused 0 "$@" </dev/null
