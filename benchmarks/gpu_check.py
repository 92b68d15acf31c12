"""Everything that needs a GPU, in one command: does it work there, and how fast is it?

    python benchmarks/gpu_check.py

Needs a GPU, nvcc, g++ and, for the parts that train, a CUDA build of torch 2.11 or newer and
pytest; installs nothing. Takes some minutes, at most `--seconds`. Can be interrupted at any time:
what is done is in the results, `runs/gpu_check.json` and the table, which is printed last.

1. The kernels are compiled for this GPU, and every step of the device is compared with the CPU's,
   byte by byte; once more under compute-sanitizer where there is one.
2. Times of the steps, as shares of the bandwidth of a copy in the same run.
3. The extension is built, and several ranks train on the GPU over gloo, and over NCCL where there
   are several GPUs (tests/python/test_cuda.py).
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "gpu_check"
HOST_SOURCES = ("csrc/core/*.cpp", "cuda/*.cpp", "benchmarks/gpu/*.cpp")
INCLUDES = [f"-I{ROOT / folder}" for folder in ("csrc", ".", "tests/cpp", "benchmarks/gpu")]
FLAGS = ["-std=c++20", "-O3", "-DNDEBUG"]


class MissingError(Exception):
    """What a step needs is not there; the message says what."""


class Check:
    """The steps and what came of them."""

    def __init__(self, output: Path, seconds: float) -> None:
        self.output = output
        self.deadline = time.monotonic() + seconds
        self.results: dict[str, Any] = {"steps": {}}

    def step(self, name: str, run: Callable[[], Any]) -> Any:
        """Runs one step; whatever becomes of it is noted, and the next one goes on."""
        print(f"=== {name}", flush=True)
        begin, result = time.monotonic(), None
        try:
            result = run()
            outcome = "passed"
        except MissingError as reason:
            outcome = f"skipped: {reason}"
        except subprocess.TimeoutExpired:
            outcome = "failed: there was no time left"
        except (subprocess.CalledProcessError, OSError) as error:
            outcome = f"failed: {error}"
        seconds = round(time.monotonic() - begin, 1)
        self.results["steps"][name] = {"outcome": outcome, "seconds": seconds}
        print(f"=== {name} {outcome} ({seconds} s)", flush=True)
        self.write()
        return result

    def command(self, *command: str | Path, env: dict[str, str] | None = None) -> None:
        left = max(1.0, self.deadline - time.monotonic())
        subprocess.run(
            [str(part) for part in command],
            check=True,
            timeout=left,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
        )

    def write(self) -> None:
        self.output.parent.mkdir(parents=True, exist_ok=True)
        self.output.write_text(json.dumps(self.results, indent=1) + "\n")

    def failed(self) -> bool:
        return any("failed" in step["outcome"] for step in self.results["steps"].values())


def cuda_home() -> Path:
    for home in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"):
        if home and (Path(home) / "bin" / "nvcc").exists():
            return Path(home)
    found = shutil.which("nvcc")
    if found is None:
        raise MissingError("nvcc was not found: set CUDA_HOME")
    return Path(found).resolve().parent.parent


def build(check: Check) -> Path:
    """The program that checks and times the kernels, compiled for the GPU that is here."""
    home = cuda_home()
    BUILD.mkdir(parents=True, exist_ok=True)
    host = [*FLAGS, "-ffp-contract=off", f"-I{home / 'include'}", *INCLUDES]
    device = [*FLAGS, "--expt-relaxed-constexpr", "-fmad=false", "-prec-div=true", "-arch=native"]

    def compile_one(source: Path) -> Path:
        target = BUILD / f"{source.parent.name}_{source.name}.o"
        compiler = ["g++", *host] if source.suffix == ".cpp" else [home / "bin/nvcc", *device]
        check.command(*compiler, *INCLUDES, "-c", source, "-o", target)
        return target

    sources = [path for pattern in (*HOST_SOURCES, "cuda/*.cu") for path in ROOT.glob(pattern)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, sorted(sources)))
    program = BUILD / "gpu_check"
    check.command(home / "bin/nvcc", "-arch=native", *objects, "-o", program)
    return program


def run_program(check: Check, program: Path, arguments: list[str]) -> dict[str, Any]:
    output = check.output.with_suffix(".program.json")
    output.unlink(missing_ok=True)
    try:
        check.command(program, *arguments, "--json", output)
    finally:
        if output.exists():
            check.results["program"] = json.loads(output.read_text())
            output.unlink()
    result: dict[str, Any] = check.results["program"]
    return result


def sanitize(check: Check, program: Path) -> None:
    sanitizer = shutil.which("compute-sanitizer") or str(cuda_home() / "bin/compute-sanitizer")
    if not Path(sanitizer).exists():
        raise MissingError("there is no compute-sanitizer")
    few = ("--cases", "12", "--elements", "20000", "--repetitions", "1")
    for tool in ("memcheck", "racecheck", "synccheck"):
        check.command(sanitizer, "--tool", tool, "--error-exitcode", "9", program, *few)


def train(check: Check) -> None:
    try:
        import pytest
        import torch
    except ImportError as error:
        raise MissingError(f"{error.name} is not installed") from error
    if not torch.cuda.is_available():
        raise MissingError(f"torch {torch.__version__} sees no GPU")
    assert pytest is not None
    package = BUILD / "package"
    major, minor = torch.cuda.get_device_capability()
    check.command(
        sys.executable,
        "setup.py",
        "--quiet",
        "build",
        f"--build-base={BUILD / 'extension'}",
        f"--build-lib={package}",
        env={
            "CUDA_HOME": str(cuda_home()),
            "ZENSYNC_BUILD_CUDA": "1",
            "TORCH_CUDA_ARCH_LIST": f"{major}.{minor}",
        },
    )
    check.command(
        sys.executable,
        *("-m", "pytest", "-q", "tests/python/test_cuda.py"),
        env={"PYTHONPATH": str(package)},
    )


def print_table(results: dict[str, Any]) -> None:
    program = results.get("program")
    if program is not None:
        print(f"\n{program['gpu']}, {program['elements']} elements, medians, waits included")
        print(f"{'step':42}{'us':>12}{'GB/s':>10}{'of copy':>9}")
        for row in program["timings"]:
            seconds, rate = row["seconds"], row["bytes"] / row["seconds"] / 1e9
            share = f"{row['share_of_copy']:.0%}"
            print(f"{row['what']:42}{seconds * 1e6:12.1f}{rate:10.1f}{share:>9}")
        print(f"{program['cases']} exchanges, {len(program['differences'])} unlike the CPU's")
    for name, step in results["steps"].items():
        print(f"{name:42}{step['outcome']} ({step['seconds']} s)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "runs" / "gpu_check.json")
    parser.add_argument("--seconds", type=float, default=450, help="the whole may take (450)")
    parser.add_argument(
        "--rehearse",
        type=Path,
        metavar="PROGRAM",
        help="no GPU: the program as the simulator runs it, and what needs one is left out",
    )
    options = parser.parse_args()
    check = Check(options.output, options.seconds)
    try:
        if options.rehearse is not None:
            few = ["--cases", "8", "--elements", "20000", "--repetitions", "1"]
            check.step("check and time", lambda: run_program(check, options.rehearse, few))
        else:
            program = check.step("build", lambda: build(check))
            if program is not None:
                check.step("check and time", lambda: run_program(check, program, []))
                check.step("sanitize", lambda: sanitize(check, program))
            check.step("train", lambda: train(check))
    except KeyboardInterrupt:
        print("interrupted: what was done is in the results")
    print_table(check.results)
    print(f"results are in {options.output}")
    return 1 if check.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
