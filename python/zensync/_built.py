"""Is the compiled extension one for the torch that is installed?

c10d's classes are no stable interface, so a build serves one minor version of torch. Another one
loads it without complaint and fails at the first call with a message that helps nobody.
"""

import torch

REBUILD = "rebuild it with `pip install --no-build-isolation .`"


def minor(version: str) -> str:
    """The part of a version that must match: "2.14.1+cu130" -> "2.14"."""
    return ".".join(version.split("+", maxsplit=1)[0].split(".")[:2])


def check_built() -> None:
    try:
        from zensync._built_for import TORCH
    except ImportError as error:
        raise ImportError(f"zensync's extension is not built: {REBUILD}") from error
    if minor(torch.__version__) != minor(TORCH):
        raise ImportError(
            f"zensync was built for torch {TORCH}, found torch {torch.__version__}: {REBUILD}"
        )
