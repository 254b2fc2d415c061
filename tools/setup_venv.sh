#!/usr/bin/env bash
# Creates VENV with PYTHON and installs the package (editable) with its development tools.
# torch: an installed one is kept; else the pinned build; when that fails the reason is kept in
# VENV/torch-missing.txt and the demo runs the simulator.
set -euo pipefail
python=$1 venv=$2
if [ ! -x "$venv/bin/python" ]; then
  # a torch that the machine already has is used, not installed again
  has_torch=()
  "$python" -c 'import torch' 2>/dev/null && has_torch=(--system-site-packages)
  "$python" -m venv "${has_torch[@]}" "$venv"
fi
pip="$venv/bin/python -m pip --disable-pip-version-check -q"
step() { printf '  setup: %s\n' "$*" >&2; }
step "build tools"
$pip install "cmake>=3.22" ninja "scikit-build-core>=0.11" 2>&1 | { grep -v 'is ignored: it is neither' || true; }
step "comminsight and its development tools"
$pip install --no-build-isolation -C wheel.cmake=false -e '.[dev]' 2>&1 | { grep -v 'is ignored: it is neither' || true; }
rm -f "$venv/torch-missing.txt"
if ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
  step "torch 2.13.0 (CPU)"
  if ! $pip install 'torch==2.13.0' >"$venv/torch-install.log" 2>&1; then
    tail -n 3 "$venv/torch-install.log" >"$venv/torch-missing.txt"
    step "torch could not be installed: $(tail -n 1 "$venv/torch-missing.txt")"
  fi
fi
# Ray is an extra: without it the rebuild runs on processes, and the tests of the cluster are skipped.
if ! "$venv/bin/python" -c 'import ray' 2>/dev/null; then
  step "ray 2.60.0"
  $pip install 'ray==2.60.0' >"$venv/ray-install.log" 2>&1 ||
    step "ray could not be installed: $(tail -n 1 "$venv/ray-install.log")"
fi
