"""`zensync bench`: what it refuses, what its rows hold, and what it leaves behind.

Every run starts real ranks. Runs are few and tiny, and no time is compared with anything but what
physics forbids.
"""

import dataclasses
import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from zensync._network import available
from zensync.bench import EXIT_USAGE, bounds, measuring, options, patterns, plots, results, table
from zensync.bench.cells import RECORDED, Cell
from zensync.bench.expected import expected
from zensync.bench.measuring import Measured, WrongResultError

why_not = available()
needs_namespaces = pytest.mark.skipif(why_not is not None, reason=str(why_not))

# A model for --model: rank 1 fails if the seed is 13. Rows 2, 4 and 5 are touched by nobody.
MODEL = """
import torch
def gradients(*, rank, ranks, seed):
    if rank == 1 and seed == 13:
        raise RuntimeError("rank 1 has bad luck")
    rows = torch.zeros(6, 2048)
    rows[rank] = rank + 1.5
    rows[3] = 1
    return [rows, torch.full((17,), rank + 1.0)]
"""
MODEL_ELEMENTS = 6 * 2048 + 17


def bench(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "zensync", "bench", *map(str, arguments)]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "RANK"}


def run(argv: list[str], modules: Path) -> subprocess.CompletedProcess[str]:
    """With the folder `modules` on Python's path."""
    variables = environment()
    variables["PYTHONPATH"] = os.pathsep.join([variables.get("PYTHONPATH", ""), str(modules)])
    return subprocess.run(argv, env=variables, check=False, capture_output=True, text=True)


def rows_of(output: Path) -> dict[str, dict[str, Any]]:
    rows = json.loads((output / "results.json").read_text())["rows"]
    return {row["scheme"]: row for row in rows}


def namespaces(process: int) -> list[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if line.startswith(f"zs{process}n")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--ranks 1", "'1' is not a whole number from 2 to 254"),
        ("--rates fast", "200mbit, or unshaped"),
        ("--schemes zen", "scheme 'zen' is not known: choose of"),
        ("--schemes agsparse:chunks=17", "option 'chunks=17' is not known"),
        ("--densities 0", "'0' is not a density"),
        ("--densities 1.5", "'1.5' is not a density"),
        ("--numel 8m", "'8m' is not a number of elements"),
        ("--patterns rows --numel 5000 --densities 0.01", "take at least 51200"),
        ("--patterns waves", "--patterns"),
        ("--warm-up 1", "leave powersgd out"),
        ("--ranks 200 --numel 1G", "take fewer --schemes, --baselines or --ranks"),
        ("--model nowhere:gradients", "cannot be loaded"),
        ("--model zensync.bench:PACKAGES", "is not a function"),
        ("--model zensync", "is not MODULE:FUNCTION"),
        ("--model zensync.bench:main --densities 0.1", "leave out --densities"),
        ("--output /proc/self/nothing", "--output /proc/self/nothing cannot be used"),
    ],
)
def test_impossible_options_give_one_line_with_a_remedy(
    arguments: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        options.parse(["--output", str(tmp_path), *arguments.split()])
    assert raised.value.code == EXIT_USAGE
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_network_options_are_refused_under_torchrun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options.parse(["--rates", "1gbit", "--output", str(tmp_path)], under_torchrun=True)
    assert "under torchrun" in capsys.readouterr().err


def test_options_are_multiplied_and_plain_ddp_is_always_there(tmp_path: Path) -> None:
    words = "--ranks 2 3 --rates 1gbit unshaped --dtypes float32 bfloat16 --densities 0.1 0.1"
    parsed = options.parse([*words.split(), "--baselines", "--output", str(tmp_path)])
    assert parsed.settings.baselines == ["ddp"]
    assert [(n.ranks, n.rate_bits_per_second) for n in parsed.networks] == [
        *((2, 10**9), (2, None), (3, 10**9), (3, None))
    ]
    assert len(parsed.settings.cells) == 4  # two types, two patterns, one density
    assert all(cell.numel == 8 * 2**20 for cell in parsed.settings.cells)


@pytest.mark.parametrize("pattern", patterns.PATTERNS)
def test_patterns_have_their_density_and_structure(pattern: str) -> None:
    cell = Cell("float32", 512 * 1000 + 3, 0.05, pattern)
    gradient = patterns.make(cell, rank=1, seed=2)
    listed = gradient.values != 0
    assert listed.float().mean() == pytest.approx(0.05, rel=0.05)
    assert not torch.signbit(gradient.values[~listed]).any(), "zeros are not -0.0"
    assert torch.equal(gradient.values, patterns.make(cell, rank=1, seed=2).values)
    assert not torch.equal(gradient.values, patterns.make(cell, rank=0, seed=2).values)
    ranges = listed[: 512 * 1000].view(10, -1).sum(dim=1)
    if pattern == "rows":
        rows = listed[: 512 * 1000].view(1000, 512)
        assert torch.equal(rows.any(dim=1), rows.all(dim=1))
        assert ranges.argmax() == 0, "popular rows come first"
    if pattern == "clustered":
        assert int((ranges > 0).sum()) <= 2
    if pattern == "uniform":
        assert ranges.max() < 1.2 * ranges.float().mean()


def test_density_one_lists_everything() -> None:
    for pattern in patterns.PATTERNS:
        gradient = patterns.make(Cell("bfloat16", 1 << 15, 1.0, pattern), rank=0, seed=0)
        assert gradient.values.count_nonzero() == 1 << 15


def test_information_of_known_cases() -> None:
    rows = [patterns.Region(0, 4, 8), patterns.Region(32, 16, 1)]
    values = torch.zeros(48)
    values[8:16] = 1
    values[40:48] = 1
    assert bounds.count_units(values, rows) == [1, 8]
    # one row of four: 4 * H(1/4) bits; eight elements of sixteen: 16 bits; 16 values of 4 bytes
    entropy = 4 * (0.25 * 2 + 0.75 * math.log2(4 / 3)) + 16
    assert bounds.information_bytes([1, 8], rows, 4) == pytest.approx(64 + entropy / 8)
    assert bounds.information_bytes([4, 16], rows, 2) == 96  # everything: nothing to tell
    assert bounds.push_pull_bytes([10, 30, 20], 60) == pytest.approx(2 / 3 * 90)
    assert bounds.seconds_on_wire(25, 10, 100) == 2
    assert bounds.seconds_on_wire(25, 10, None) is None


def test_a_wrong_result_ends_the_benchmark(tmp_path: Path) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        good = Measured("balanced_parallelism", "scheme", exact=True, difference=1e-7)
        measuring._check(good, torch.float32)
        for difference in (1e-6, math.nan):
            bad = Measured("balanced_parallelism", "scheme", exact=True, difference=difference)
            with pytest.raises(WrongResultError, match="balanced_parallelism gives another result"):
                measuring._check(bad, torch.float32)
            bad.exact = False
            measuring._check(bad, torch.float32)
    finally:
        torch.distributed.destroy_process_group()


def check_row(row: dict[str, Any], *, shaped: bool) -> None:
    assert set(row) == {field.name for field in dataclasses.fields(results.Row)}
    assert row["seconds"] == sorted(row["seconds_of_repetitions"])[1]  # the median of three
    assert (row["ratio_to_wire"] is None) == (not shaped or row["scheme"] == "noop")
    assert 0 <= row["cpu_share"] <= 1
    assert row["cpu_limited"] == (row["cpu_share"] > 0.25)
    if row["exact"]:
        assert row["same_on_all_ranks"]


def test_a_models_gradients_on_a_network(tmp_path: Path) -> None:
    """Shaped where it may be, otherwise on the loopback, with a word about it."""
    (tmp_path / "my_model.py").write_text(MODEL)
    done = run(
        bench(
            *("--ranks", 2, "--rates", "100mbit", "--model", "my_model:gradients"),
            *("--schemes", "balanced_parallelism", "agsparse"),
            *("balanced_parallelism:packed", "balanced_parallelism:dgc=0.05"),
            *("--repetitions", 3, "--output", tmp_path / "out"),
        ),
        tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shaped = why_not is None
    assert ("no network is shaped here" in done.stderr) == (not shaped)
    rows = rows_of(tmp_path / "out")
    assert list(rows) == [
        *("ddp", "ddp_bf16", "powersgd", "coo", "noop"),
        *("balanced_parallelism", "agsparse", "balanced_parallelism:packed"),
        "balanced_parallelism:dgc=0.05",
    ]
    for row in rows.values():
        check_row(row, shaped=shaped)
        assert row["pattern"] == RECORDED
        assert row["numel"] == MODEL_ELEMENTS
        assert row["density_before"] == pytest.approx((2 * 2048 + 17) / MODEL_ELEMENTS)
        assert row["density_after"] == pytest.approx((3 * 2048 + 17) / MODEL_ELEMENTS)
    ours = rows["balanced_parallelism"]
    assert set(ours["seconds_by_stage"]) == set(results.STAGES)
    assert 0 < ours["bytes_out"] < rows["ddp"]["bytes_out"]
    assert rows["ddp"]["bytes_out"] == 4 * MODEL_ELEMENTS  # 2 (n - 1) / n times the gradient
    if shaped:
        assert ours["card_bytes_out"] > ours["bytes_out"]
    assert list((tmp_path / "out").glob("*.png"))
    assert len(list((tmp_path / "out" / "recorded").iterdir())) == 2
    assert "balanced_parallelism" in done.stdout


def test_a_rank_that_fails_ends_the_benchmark_with_its_error(tmp_path: Path) -> None:
    (tmp_path / "my_model.py").write_text(MODEL)
    done = run(
        bench(
            *("--ranks", 2, "--rates", "unshaped", "--model", "my_model:gradients", "--seed", 13),
            *("--schemes", "balanced_parallelism", "--baselines", "--output", tmp_path / "out"),
        ),
        tmp_path,
    )
    assert done.returncode == 1
    assert "rank 1 has bad luck" in done.stderr
    assert not (tmp_path / "out" / "results.json").exists()


def test_under_torchrun_it_measures_the_network_as_it_is(tmp_path: Path) -> None:
    done = run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"),
            *("-m", "zensync", "bench", "--numel=64K", "--densities=0.1", "--patterns=clustered"),
            *("--schemes", "balanced_parallelism", "--baselines", "coo", "--repetitions=3"),
            f"--output={tmp_path}",
        ],
        tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = rows_of(tmp_path)
    assert list(rows) == ["ddp", "coo", "balanced_parallelism"]
    for row in rows.values():
        check_row(row, shaped=False)
        assert (row["ranks"], row["rate_bits_per_second"]) == (2, None)


@needs_namespaces
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_no_namespace_and_no_rank_outlives_the_benchmark(ending: int, tmp_path: Path) -> None:
    argv = bench("--ranks", 2, "--rates", "1gbit", "--repetitions", 1000, "--output", tmp_path)
    with subprocess.Popen(argv, env=environment(), stderr=subprocess.DEVNULL) as process:
        while not (ranks := ranks_of(process.pid)):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(ending)
        process.wait()
    assert process.returncode == (130 if ending == signal.SIGINT else -signal.SIGKILL)
    while ending == signal.SIGKILL and (namespaces(process.pid) or any(map(running, ranks))):
        time.sleep(0.05)  # the guard is at work; pytest's own limit ends a hang
    assert namespaces(process.pid) == []
    assert not any(map(running, ranks))


def ranks_of(process: int) -> list[int]:
    """Processes in the namespaces of the hosts that the benchmark has made."""
    hosts = [line.split()[0] for line in namespaces(process)]
    listed = [
        subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True, check=False)
        for host in hosts
    ]
    return [int(pid) for done in listed for pid in done.stdout.split()]


def running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def example_row(**changes: Any) -> results.Row:
    fields: dict[str, Any] = {
        **{"scheme": "balanced_parallelism", "kind": "scheme", "ranks": 4, "buckets": 1},
        **{"rate_bits_per_second": 2 * 10**8, "dtype": "float32", "numel": 2**23},
        **{"density": 0.01, "density_before": 0.01, "density_after": 0.04, "pattern": "rows"},
        **{"chunks": 4, "seconds": 0.5, "seconds_of_repetitions": [0.5], "bytes_out": 1e6},
        **{"bytes_in": 1e6, "card_bytes_out": 1.1e6, "wire_seconds": 0.04, "ratio_to_wire": 12.5},
        **{"entropy_bytes": 9e5, "entropy_seconds": 0.036, "ratio_to_entropy": 13.9},
        **{
            "cpu_share": 0.3,
            "cpu_share_of_ranks": 0.25,
            "cpu_limited": True,
            "algbw": 6.7e7,
            "speedup_over_ddp": 4.0,
        },
        **{"speedup_over_ddp_bf16": None, "imbalance": 1.01, "seconds_by_stage": {}},
        **{"extra_resident_bytes": 1000, "extra_resident_ratio": 0.5, "exact": True},
        **{"difference": 0.0, "same_on_all_ranks": True},
    }
    return results.Row(**{**fields, **changes})


def test_table_fits_its_width_and_marks_rows_that_the_processors_limit() -> None:
    console = Console(width=table.WIDTH, record=True, file=io.StringIO())
    table.print_tables(
        console,
        [
            example_row(scheme="ddp", kind="baseline", cpu_share=0.1, cpu_limited=False),
            example_row(scheme="balanced_parallelism:packed:chunks=16:exact", bytes_out=1.2e9),
        ],
    )
    text = console.export_text()
    assert "…" not in text
    assert "30%*" in text
    assert "10%*" not in text
    assert "more than 25%" in text
    assert "Other programs" not in text
    table.print_tables(console, [example_row(cpu_share=0.9)])
    assert "Other programs had up to 65%" in console.export_text()


def test_fewest_bytes_predict_the_fastest_unless_it_is_close_or_the_processors_limit() -> None:
    def cell(others_wire: float, **ours: Any) -> list[results.Row]:
        free = {"cpu_limited": False, "cpu_share": 0.1}
        return [
            example_row(**{"wire_seconds": 0.3, "seconds": 0.32, **free, **ours}),
            example_row(scheme="agsparse", wire_seconds=others_wire, seconds=0.5, **free),
            example_row(scheme="ddp_bf16", wire_seconds=0.1, seconds=0.1, exact=False, **free),
        ]

    found = expected(cell(0.4))
    assert found is not None
    assert (found.scheme, found.fastest) == ("balanced_parallelism", "balanced_parallelism")
    assert found.margin == pytest.approx(0.25)
    assert str(found) == (
        "fewest bytes: balanced_parallelism, by 25%; fastest: balanced_parallelism"
    )
    slow = expected(cell(0.4, seconds=0.6))
    assert slow is not None
    assert slow.fastest == "agsparse"
    assert "processors" in str(expected(cell(0.4, cpu_limited=True)))
    assert expected(cell(0.31)) is None
    assert expected(cell(0.4)[:1]) is None
    assert expected([example_row(wire_seconds=None), example_row(wire_seconds=None)]) is None


def test_a_plot_for_each_sweep(tmp_path: Path) -> None:
    grid = [
        example_row(scheme=scheme, kind=kind, ranks=ranks, density=density)
        for scheme, kind in (("ddp", "baseline"), ("balanced_parallelism", "scheme"))
        for ranks in (2, 4)
        for density in (0.01, 0.1)
    ]
    names = sorted(path.name for path in plots.write_plots(grid, tmp_path))
    assert [name.split("-")[1] for name in names] == ["density", "density", "ranks", "ranks"]
    (alone,) = plots.write_plots([example_row()], tmp_path)
    assert alone.name.startswith("bars-")
    assert alone.read_bytes().startswith(b"\x89PNG")
