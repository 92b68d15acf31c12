#!/usr/bin/env bash
# Builds the extension for GPUs against a CUDA build of torch, imports it and runs the Python tests:
# `scripts/test_cuda_build.sh TORCH [pytest's arguments]`. Without a GPU the tests use CPU tensors.
# Says so and does nothing where nvcc or the wheel of torch is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

torch=$1
shift
venv=.venv-torch-$torch
build=build/torch-$torch-cuda

skip() {
  echo "The build for GPUs was skipped: $1"
  exit 0
}

# nvcc on the PATH may be a link or a script far from its toolkit.
for home in "${CUDA_HOME:-}" /usr/local/cuda; do
  [[ -n $home && -x $home/bin/nvcc ]] && break
done
[[ -x $home/bin/nvcc ]] || skip "no nvcc in CUDA_HOME or /usr/local/cuda"
scripts/python_environment.sh "$venv" "$torch" || skip "torch $torch could not be installed"
"$venv/bin/python" -c "import sys, torch; sys.exit(not torch.version.cuda)" ||
  skip "torch $torch is here a build for CPUs"

echo "Building the extension for GPUs and torch $torch (the first time takes minutes)"
rm -rf "$build/package"
mkdir -p build/results
CUDA_HOME=$home ZENSYNC_BUILD_CUDA=1 CFLAGS=-Werror "$venv/bin/python" setup.py --quiet build \
  --build-base="$build" --build-lib="$build/package" >build/cuda_extension.log 2>&1 ||
  { cat build/cuda_extension.log; exit 1; }

export PYTHONPATH=$build/package
"$venv/bin/python" -c "import zensync._C as built; assert built.build_info()['cuda']"
"$venv/bin/python" -m pytest --junitxml=build/results/cuda.xml "$@"
