"""Builds the extension zensync._C against the torch that is installed.

pip install --no-build-isolation .        for use
pip install --no-build-isolation -e .     for development

ZENSYNC_BUILD_CUDA=0 builds for CPU tensors only, which needs no CUDA toolkit.
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


def check_headers() -> None:
    """Some wheels have shipped without the C++ headers of torch.distributed (pytorch#179414)."""
    needed = "torch/csrc/distributed/c10d/reducer.hpp"
    if not any((Path(folder) / needed).exists() for folder in cpp_extension.include_paths()):
        raise SystemExit(
            f"zensync needs the C++ headers of torch, and torch {torch.__version__} at "
            f"{Path(torch.__file__).parent} has no {needed}: install another build of torch"
        )


def check_cuda() -> None:
    """A CUDA build of torch is served by a CUDA build of zensync, unless told otherwise."""
    choice = os.environ.get("ZENSYNC_BUILD_CUDA", "1")
    if choice not in ("0", "1"):
        raise SystemExit(f"ZENSYNC_BUILD_CUDA is {choice!r}: set it to 0 or 1, or unset it")
    if choice == "0" or not torch.version.cuda:
        return
    toolkit = cpp_extension.CUDA_HOME
    if toolkit is None or not (Path(toolkit) / "bin" / "nvcc").exists():
        raise SystemExit(
            f"torch {torch.__version__} is a CUDA build and no CUDA toolkit was found (CUDA_HOME "
            f"is {toolkit}, without bin/nvcc): set CUDA_HOME to its folder, or "
            "ZENSYNC_BUILD_CUDA=0 to synchronise CPU tensors only"
        )


def sources() -> list[str]:
    """Every source of the three layers, relative to this file as setuptools wants them."""
    layers = ("core", "schemes", "torch")
    return [
        str(path.relative_to(ROOT))
        for layer in layers
        for path in sorted((ROOT / "csrc" / layer).glob("*.cpp"))
    ]


def extension() -> Extension:
    extension: Extension = cpp_extension.CppExtension("zensync._C", sources())
    # torch's folders become system folders: warnings are then about our own code only.
    system_folders = [flag for path in cpp_extension.include_paths() for flag in ("-isystem", path)]
    extension.include_dirs = [str(ROOT / "csrc")]
    extension.extra_compile_args = {
        "cxx": [
            "-std=c++20",
            "-O3",
            "-g0",
            "-DNDEBUG",
            "-ffp-contract=off",
            "-fvisibility=hidden",
            "-Wall",
            "-Wextra",
            *system_folders,
        ]
    }
    return extension


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
check_cuda()
setup(
    ext_modules=[extension()],
    cmdclass={"build_ext": BuildExtension},
    # One build tree per torch: switching between versions neither mixes nor rebuilds objects.
    options={"build": {"build_base": f"build/torch-{torch.__version__}"}},
)
