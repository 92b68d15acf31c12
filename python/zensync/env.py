"""What a bug report needs to say about the machine and the build."""

import os
import platform
import sys

import torch
import torch.distributed as dist

from zensync import _C
from zensync._version import __version__

_VARIABLES = ("GLOO_SOCKET_IFNAME", "TORCH_DISTRIBUTED_DEBUG", "ZENSYNC_ISA")


def environment() -> dict[str, str]:
    build = _C.build_info()
    facts = {
        "zensync": __version__,
        "schemes": ", ".join(_C.schemes()),
        "built for torch": build["torch"],
        "built with": f"{build['compiler']}, C++ {build['cxx_standard']}",
        "CUDA tensors": "yes" if build["cuda"] else "no",
        "kernels": build["isa"],
        "torch": f"{torch.__version__} (CUDA {torch.version.cuda or 'none'})",
        "backends": ", ".join(_backends()),
        "Python": sys.version.split()[0],
        "system": platform.platform(),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
    }
    facts.update({name: os.environ[name] for name in _VARIABLES if name in os.environ})
    return facts


def report() -> str:
    facts = environment()
    width = max(map(len, facts))
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in facts.items())


def _backends() -> list[str]:
    available = {
        "gloo": dist.is_gloo_available(),
        "nccl": dist.is_nccl_available(),
        "mpi": dist.is_mpi_available(),
        "ucc": dist.is_ucc_available(),
    }
    return [name for name, is_there in available.items() if is_there]


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()
