"""Runs a comparing example as a user does."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def run_example(file: str | None, output: Path, *options: str) -> dict[str, Any]:
    """Three iterations on two ranks: the results, checked."""
    assert file is not None
    done = subprocess.run(
        [sys.executable, file, "--ranks=2", "--iterations=3", f"--output={output}", *options],
        env=rankless_environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results: dict[str, Any] = json.loads((output / "results.json").read_text())
    check_results(results, ranks=2)
    assert results["max_parameter_difference"] < 1e-3
    assert (output / "plot.png").stat().st_size > 0
    return results


def rankless_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "RANK"}


def check_results(results: dict[str, Any], ranks: int) -> None:
    assert results["ranks"] == ranks
    assert results["rate_bits_per_second"] is None
    assert isinstance(results["max_parameter_difference"], float)
    schemes = results["schemes"]
    assert isinstance(schemes, dict)
    assert set(schemes) == {"ddp", "zensync"}
    for figures in schemes.values():
        for key in ("seconds_per_iteration", "bytes_sent_per_rank_per_iteration", "final_loss"):
            assert figures[key] > 0
