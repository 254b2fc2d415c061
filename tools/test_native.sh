#!/usr/bin/env bash
# Builds and runs the native unit tests plain, under ASan+UBSan and under TSan.
# Usage: tools/test_native.sh BIN_DIR   (where cmake and ninja are)
set -euo pipefail
bin=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."

can_link() { # does the compiler have this sanitizer?
  local out
  out=$(mktemp)
  echo 'int main() { return 0; }' | "${CXX:-c++}" -x c++ -fsanitize="$1" -o "$out" - 2>/dev/null && "$out"
  local rc=$?
  rm -f "$out"
  return $rc
}

run() { # NAME SANITIZERS
  local tree=build/native-$1
  if [ -n "$2" ] && ! can_link "$2"; then
    echo "native tests ($1): skipped, ${CXX:-c++} cannot build and run -fsanitize=$2"
    return
  fi
  echo "native tests ($1)"
  "$bin/cmake" -S . -B "$tree" -G Ninja -DCMAKE_MAKE_PROGRAM="$bin/ninja" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_FLAGS_RELEASE="-O1 -g" -DCOMMINSIGHT_TESTS=ON -DCOMMINSIGHT_SANITIZE="$2" >/dev/null
  "$bin/cmake" --build "$tree" >"$tree/build.log" || { cat "$tree/build.log"; return 1; }
  UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1 \
    "$bin/ctest" --test-dir "$tree" --output-on-failure | grep -E 'Test +#|tests passed|\*\*\*|CHECK|ERROR|WARNING|#[0-9]+ ' || return 1
  return "${PIPESTATUS[0]}"
}

run plain ""
run asan address,undefined
run tsan thread
