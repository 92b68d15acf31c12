"""Builds the extension zensync._C against the torch that is installed.

pip install --no-build-isolation .        for use
pip install --no-build-isolation -e .     for development

A CUDA build of torch gets an extension for GPUs, too. ZENSYNC_BUILD_CUDA=0 builds for CPU tensors
only, which needs no CUDA toolkit; TORCH_CUDA_ARCH_LIST chooses the GPUs, as it does for torch.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

try:
    import torch
    from torch.utils import cpp_extension
except ImportError as error:
    raise SystemExit(
        "zensync is built against an installed torch and found none: run `pip install torch`, "
        "then `pip install --no-build-isolation .`"
    ) from error

ROOT = Path(__file__).resolve().parent

# A100, H100 and H200, B200; newer GPUs compile the intermediate code.
GPUS = "8.0;9.0;10.0+PTX"


def check_headers() -> None:
    """Some wheels have shipped without the C++ headers of torch.distributed (pytorch#179414)."""
    needed = "torch/csrc/distributed/c10d/reducer.hpp"
    if not any((Path(folder) / needed).exists() for folder in cpp_extension.include_paths()):
        raise SystemExit(
            f"zensync needs the C++ headers of torch, and torch {torch.__version__} at "
            f"{Path(torch.__file__).parent} has no {needed}: install another build of torch"
        )


def builds_cuda() -> bool:
    """A CUDA build of torch is served by a CUDA build of zensync, unless told otherwise."""
    choice = os.environ.get("ZENSYNC_BUILD_CUDA", "")
    if choice not in ("", "0", "1"):
        raise SystemExit(f"ZENSYNC_BUILD_CUDA is {choice!r}: set it to 0 or 1, or unset it")
    if choice == "1" and not torch.version.cuda:
        raise SystemExit(
            f"ZENSYNC_BUILD_CUDA is 1, but torch {torch.__version__} is a build for CPUs: install "
            "a CUDA build of torch, or unset ZENSYNC_BUILD_CUDA"
        )
    if choice == "0" or not torch.version.cuda:
        return False
    toolkit = cpp_extension.CUDA_HOME
    if toolkit is None or not (Path(toolkit) / "bin" / "nvcc").exists():
        raise SystemExit(
            f"torch {torch.__version__} is a CUDA build and no CUDA toolkit was found (CUDA_HOME "
            f"is {toolkit}, without bin/nvcc): set CUDA_HOME to its folder, or "
            "ZENSYNC_BUILD_CUDA=0 to synchronise CPU tensors only"
        )
    return True


def sources(cuda: bool) -> list[str]:
    """Every source of the layers, relative to this file as setuptools wants them."""
    patterns = [f"csrc/{layer}/*.cpp" for layer in ("core", "schemes", "torch")]
    if cuda:
        patterns += ["csrc/torch/cuda/*.cpp", "cuda/*.cpp", "cuda/*.cu"]
    paths = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    left_out = "cpu_only.cpp" if cuda else ""
    return [str(path.relative_to(ROOT)) for path in paths if path.name != left_out]


# Results do not depend on the processor: no fused multiply-add, and exact division.
CXX_FLAGS = [
    "-std=c++20",
    "-O3",
    "-g0",
    "-DNDEBUG",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
]
NVCC_FLAGS = [
    "-std=c++20",
    "-O3",
    "-DNDEBUG",
    "--expt-relaxed-constexpr",
    "-fmad=false",
    "-prec-div=true",
    "-Xcompiler",
    "-Wall,-Wextra,-ffp-contract=off",
]


def extension(cuda: bool) -> Extension:
    extension: Extension = (
        cpp_extension.CUDAExtension("zensync._C", sources(cuda))
        if cuda
        else cpp_extension.CppExtension("zensync._C", sources(cuda))
    )
    # torch's folders become system folders: warnings are then about our own code only.
    folders = cpp_extension.include_paths("cuda" if cuda else "cpu")
    system_folders = [flag for path in folders for flag in ("-isystem", path)]
    extension.include_dirs = [str(ROOT / "csrc"), str(ROOT)]
    extension.extra_compile_args = {
        "cxx": [*CXX_FLAGS, *system_folders],
        "nvcc": [*NVCC_FLAGS, *_strict()],
    }
    return extension


def _strict() -> list[str]:
    """What CFLAGS=-Werror asks of the other compiler."""
    return ["-Werror", "all-warnings"] if "-Werror" in os.environ.get("CFLAGS", "") else []


class BuildExtension(cpp_extension.BuildExtension):
    """Also records, beside the extension, the torch it was built for."""

    def run(self) -> None:
        super().run()
        record = f'"""Written by setup.py."""\n\nTORCH = "{torch.__version__}"\n'
        package = Path("zensync")
        folders = [Path(self.build_lib) / package]
        if self.inplace:
            folders.append(ROOT / "python" / package)
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "_built_for.py").write_text(record)


check_headers()
os.environ.setdefault("TORCH_CUDA_ARCH_LIST", GPUS)
setup(
    ext_modules=[extension(builds_cuda())],
    cmdclass={"build_ext": BuildExtension},
    # One build tree per torch: switching between versions neither mixes nor rebuilds objects.
    options={"build": {"build_base": f"build/torch-{torch.__version__}"}},
)
