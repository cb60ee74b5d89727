#!/bin/sh
# Brings nvcc and the CUDA runtime from PyPI into build/cuda-toolkit, where -DMOEFLUX_CUDA=ON finds
# them: about 300 MB, no root, no GPU and no driver needed to compile. A toolkit that is installed
# already (CUDA_HOME, /usr/local/cuda, nvcc on the PATH) makes this unnecessary. Versions are exact:
# .ci/verified knows them by this file.
set -eu
cd "$(dirname "$0")/.."

folder=build/cuda-toolkit
if ls $folder/lib/python3*/site-packages/nvidia/cu*/bin/nvcc >/dev/null 2>&1; then
  exit 0
fi
python3 -m venv $folder
$folder/bin/pip install --quiet --disable-pip-version-check \
  nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 \
  nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
ls $folder/lib/python3*/site-packages/nvidia/cu*/bin/nvcc
