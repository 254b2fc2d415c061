#!/bin/sh
# Plays every scenario with all ranks in one process, where their threads meet; for builds with sanitizers.
# Usage: play_all.sh PROGRAM LIBRARY SCENARIOS SANITIZERS
set -u
program=$1 library=$2 scenarios=$3 sanitizers=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=halt_on_error=1 # processes end with threads still running
export COMMINSIGHT_NCCL_MASK=deep COMMINSIGHT_BOX_DIR="$work/box" COMMINSIGHT_SPOOL="$work/spool"
releases="2.30 2.32"
[ "$sanitizers" = thread ] && releases=2.32 # slow, and this one has the most threads
n=0
for file in "$scenarios"/*/*.txt; do
  case "$sanitizers:$file" in
    *:*overflow*) continue ;; # a hundred thousand ops take minutes here
    thread:*fork*) continue ;; # TSan has no forks of processes with threads
  esac
  expected=0
  case "$file" in *kill*) expected=1 ;; esac
  { echo "layout threads" && cat "$file"; } >"$work/script.txt"
  for release in $releases; do
    "$program" "$work/script.txt" --quiet --release $release --plugin "$library" --log "$work/log" </dev/null >"$work/out" 2>&1
    status=$?
    if [ $status -ne $expected ] || [ -s "$work/out" ] || grep '"event":"end"' "$work/log" | grep -qv '"unwritten":0,"nonzero":0}'; then
      echo "CHECK failed: $file as NCCL $release ended with $status"
      cat "$work/out"
      exit 1
    fi
    rm -rf "$work/log" "$work/box" "$work/spool"
    n=$((n + 1))
  done
done
echo "$n plays"
[ $n -gt 40 ]
