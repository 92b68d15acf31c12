"""What benchmarks/paper_figures.py computes, on index sets that can be counted by hand."""

import json
from pathlib import Path

import pytest
import torch

from figures import characteristics, plots, report, schemes
from figures.characteristics import Characteristics
from figures.recorded import Table


def touched(*rows: set[int], count: int = 16) -> torch.Tensor:
    result = torch.zeros(len(rows), count, dtype=torch.bool)
    for rank, own in enumerate(rows):
        result[rank, sorted(own)] = True
    return result


FOUR = touched({0, 1, 2, 3}, {0, 1, 8, 9}, {0, 15}, {0, 14})


def test_overlap_is_the_share_of_the_smaller_set() -> None:
    assert characteristics.overlaps(FOUR[:3]) == [2 / 4, 1 / 2, 1 / 2]


def test_densification_is_the_sum_over_the_mean() -> None:
    assert characteristics.densification(FOUR, 1) == 1
    assert characteristics.densification(FOUR, 2) == pytest.approx((6 + 3) * 2 / 12)
    assert characteristics.densification(FOUR, 4) == pytest.approx(8 * 4 / 12)


def test_skewness_is_the_fullest_part_times_their_number() -> None:
    assert characteristics.part_shares(FOUR, 4)[1].tolist() == [0.5, 0, 0.5, 0]
    assert characteristics.skewness(FOUR, 4) == pytest.approx(4 * (1 + 0.5 + 0.5 + 0.5) / 4)
    assert characteristics.skewness(touched({0, 5, 10}, count=15), 3) == pytest.approx(1)


def measured() -> Characteristics:
    return characteristics.measure(Table("LSTM", "reader.input", 4, FOUR, filled=0.5))


def test_measure_fills_all_in_and_survives_json() -> None:
    found = measured()
    assert found.density == pytest.approx(12 / 64 * 0.5)
    assert sorted(found.densification) == [2, 4]
    assert Characteristics.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_table_and_figures_are_made(tmp_path: Path) -> None:
    found = characteristics.measure(Table("LSTM", "reader.input", 4, FOUR.repeat(2, 1), filled=1.0))
    text = report.table([found])
    assert "| LSTM | reader.input | 16 | 18.75% |" in text
    plots.write_characteristics([found], tmp_path / "characteristics.png")
    rows = [
        {"scheme": scheme, "ranks": 2, "rate_bits_per_second": 1, "seconds": 1 / speed,
         "speedup_over_ddp": speed}
        for scheme, speed in (("ddp", 1.0), ("agsparse", 2.0), ("zen_paper", 4.0))
    ]  # fmt: skip
    results = tmp_path / "lstm" / "results.json"
    results.parent.mkdir()
    results.write_text(json.dumps({"rows": rows}))
    times = schemes.read([results])
    assert "| zen_paper | **4.00** |" in schemes.table(times)
    assert "| plain DDP, ms | 1000 |" in schemes.table(times)
    plots.write_schemes(times, tmp_path / "schemes.png")
    for name in ("characteristics.png", "schemes.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
