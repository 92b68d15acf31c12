"""The package around the hook: what it says about itself."""

import subprocess
import sys

import pytest
import torch

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


def test_public_names() -> None:
    assert set(zensync.__all__) == {"State", "__version__", "all_reduce", "hook", "schemes"}
    assert zensync.schemes()[0] == "allreduce"
