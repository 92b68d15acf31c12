"""The package around the hook: what it says about itself."""

import runpy
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

import zensync
from zensync import _built, env


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "zensync", *arguments], capture_output=True, text=True, check=False
    )


def test_env_prints_what_a_bug_report_needs() -> None:
    done = run("env")
    assert done.returncode == 0, done.stderr
    for fact in (f"zensync          {zensync.__version__}", torch.__version__, "gloo", "kernels"):
        assert fact in done.stdout


def test_env_names_a_variable_only_if_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    assert "GLOO_SOCKET_IFNAME" not in env.report()
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert "GLOO_SOCKET_IFNAME" in env.report()


@pytest.mark.parametrize("arguments", [(), ("advise-me",)])
def test_unknown_command(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "env" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("version", "expected"),
    [("2.14.1+cu130", "2.14"), ("2.13.0", "2.13"), ("2.15.0.dev20260101+cpu", "2.15")],
)
def test_minor_version(version: str, expected: str) -> None:
    assert _built.minor(version) == expected


def test_import_refuses_a_build_for_another_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "9.7.1+cpu")
    with pytest.raises(ImportError) as caught:
        _built.check_built()
    assert "built for torch 2." in str(caught.value)
    assert "found torch 9.7.1+cpu: rebuild it" in str(caught.value)


def test_import_says_that_nothing_was_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zensync._built_for", None)
    with pytest.raises(ImportError, match="not built"):
        _built.check_built()


SETUP = Path(__file__).resolve().parents[2] / "setup.py"


def refusal() -> str:
    """What setup.py says when it stops before it has built anything."""
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(SETUP))
    return str(caught.value)


def test_setup_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "pip install torch" in refusal()


def test_setup_without_the_headers_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp_extension, "include_paths", lambda *_: ["/nowhere"])
    assert "reducer.hpp: install another build of torch" in refusal()


@pytest.mark.parametrize("toolkit", [None, "/nowhere"])
def test_setup_without_the_cuda_toolkit(
    monkeypatch: pytest.MonkeyPatch, toolkit: str | None
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", toolkit)
    monkeypatch.setenv("ZENSYNC_BUILD_CUDA", "1")
    assert "set CUDA_HOME" in refusal()


def test_source_distribution_has_what_a_build_reads(tmp_path: Path) -> None:
    setup = [sys.executable, str(SETUP), "--quiet", "egg_info", "--egg-base", str(tmp_path)]
    subprocess.run([*setup, "sdist", "--dist-dir", str(tmp_path)], cwd=SETUP.parent, check=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        packed = {Path(*Path(name).parts[1:]) for name in files.getnames()}
    sources = {path.relative_to(SETUP.parent) for path in (SETUP.parent / "csrc").rglob("*.*")}
    assert sources <= packed, sources - packed


def test_setup_with_a_wrong_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZENSYNC_BUILD_CUDA", "yes")
    assert "'yes': set it to 0 or 1" in refusal()


def test_public_names() -> None:
    assert set(zensync.__all__) == {"DGC", "State", "__version__", "all_reduce", "hook", "schemes"}
    assert zensync.schemes()[0] == "allreduce"
