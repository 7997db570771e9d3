#!/bin/sh
# Runs a compile command and fails if ptxas notes that it serialized wgmma (C7510, or C7514 with another reason). The
# kernel would be correct but several times slower, and ptxas does not warn about it.
said=$("$@" 2>&1)
status=$?
[ -z "$said" ] || printf '%s\n' "$said" >&2
case $said in
*C751[0-9]*)
  echo "error: ptxas serialized wgmma instructions; see above for the kernel" >&2
  while [ $# -gt 1 ]; do
    [ "$1" != -o ] || rm -f "$2"
    shift
  done
  exit 1
  ;;
esac
exit $status
