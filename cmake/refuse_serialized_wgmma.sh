#!/bin/sh
# Runs a compile command and fails if ptxas says that it serialized wgmma (C7510, or C7514 with another reason): the
# kernel would be right, and several times slower than it should be, and ptxas thinks that worth no warning.
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
