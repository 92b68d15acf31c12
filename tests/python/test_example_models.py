"""DeepFM with its clicks, the sequence-to-sequence model with its pairs; then both, once, on two
ranks. What they share with the demo is tested in test_demo_parts.py."""

import math
import sys
from pathlib import Path

import pytest
import torch
from example_runs import run_example
from torch import Tensor

import deepfm
import translation
from click_model import criteo
from click_model import workload as clicks_workload
from click_model.model import DeepFM
from click_model.synthetic import SyntheticClicks
from common import command_line, corpus
from translation_model import pairs
from translation_model.model import Batch, Size, Translator
from translation_model.pairs import Lengths

FIELDS = (3, 50, 1)
TINY = Size(9, 12, width=8, pairs=2, lengths=Lengths(4, 3), negatives=30)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_clicks_have_a_value_of_each_field_and_follow_zipf_and_the_truth() -> None:
    clicks = SyntheticClicks(FIELDS)
    batch = clicks.draw(20_000, generator())
    values = batch.rows - torch.tensor([0, 3, 53])
    assert (values >= 0).all()
    assert (values < torch.tensor(FIELDS)).all()
    share = (values[:, 1] == 0).float().mean()
    assert float(share) == pytest.approx(math.log(2) / math.log(51), abs=0.02)
    chance = torch.sigmoid(clicks.log_odds(batch.rows))
    assert float(batch.clicked.mean()) == pytest.approx(float(chance.mean()), abs=0.02)
    likely = chance > chance.median()
    assert batch.clicked[likely].mean() > batch.clicked[~likely].mean()


def test_deepfm_is_the_sum_of_its_parts() -> None:
    torch.manual_seed(0)
    model = DeepFM(sum(FIELDS), len(FIELDS), width=4, hidden=(5, 3))
    torch.nn.init.normal_(model.first_order.weight)
    row = torch.tensor([1, 7, 53])
    v = model.table.weight[row]
    expected = model.first_order.weight[row].sum() + v[0] @ v[1] + v[0] @ v[2] + v[1] @ v[2]
    expected = expected + model.deep(v.flatten()).squeeze()
    assert model.log_odds(row[None]).item() == pytest.approx(expected.item(), rel=1e-5)


def criteo_file(path: Path, examples: int, category: str = "{}") -> Path:
    lines = []
    for number in range(examples):
        categories = [category.format(number % (field + 1)) for field in range(26)]
        lines.append("\t".join([str(number % 2), *["3"] * 13, *categories]) + "\n")
    path.write_text("".join(lines))
    return path


def test_criteo_values_are_numbered_by_frequency_and_the_rare_share_one(tmp_path: Path) -> None:
    table = criteo.read(criteo_file(tmp_path / "train.txt", 60), 5, values=3)
    assert table.shape == (5, 27)
    assert table[:, 0].tolist() == [0, 1, 0, 1, 0]
    assert table[:, 1].tolist() == [0] * 5  # the first field has one value
    assert table[:, 2].tolist() == [0, 1, 0, 1, 0]
    assert table[:, 26].tolist() == [0, 1, 2, 2, 2]  # five different ones


def test_criteo_examples_are_all_used_once_and_held_out_ones_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clicks_workload, "EXAMPLES", 9)
    path = criteo_file(tmp_path / "train.txt", 40)  # field 25 tells examples apart
    of_rank = clicks_workload.from_criteo(path, 20, 100, ranks=2, seed=1)
    ranks = [of_rank(rank) for rank in range(2)]
    trained = torch.cat([rank.batch(0).rows for rank in ranks])[:, 25].tolist()
    assert len(set(trained)) == 18
    model = ranks[0].new_model(1)
    assert ranks[0].held_out_loss(model) != ranks[1].held_out_loss(model)
    with pytest.raises(criteo.CriteoError, match="has 19 examples, too few for 9 on each of 2"):
        clicks_workload.from_criteo(path, 19, 100, ranks=2, seed=1)


@pytest.mark.parametrize("text", [None, "", "0\t1\n", "2" + "\t" * 39 + "\n"])
def test_unreadable_criteo_files_are_refused_in_one_line(
    text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.txt"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit):
        command_line.parse(deepfm.EXAMPLE, ["--criteo", str(path)])
    said = capsys.readouterr().err
    assert said.startswith(f"{Path(sys.argv[0]).name}: --criteo cannot be used: ")
    assert said.count("\n") == 1


def test_pairs_are_docstrings_and_the_code_after_them() -> None:
    text = 'def f(a,\n  b):\n  """Says f."""\n  return a\n\ndef g():\n  return 1\n\nx = 1\n'
    assert list(pairs.functions(text)) == [("Says f.", "def f(a,\n  b):\n  return a")]
    assert list(pairs.functions("def broken(")) == []
    assert list(pairs.functions('def only():\n  """A docstring."""\n')) == []


def test_sources_are_padded_in_front_and_targets_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = 'def f():\n  """a a b"""\n  return\n\ndef g():\n  """a b c d e"""\n  pass\n'
    monkeypatch.setattr(corpus, "sources", lambda: iter([text]))
    table = pairs.read(5, 40, Lengths(4, 9))
    assert table[:, :4].tolist() == [[5, 0, 0, 1], [0, 1, 2, 3]]
    assert table[:, 4].tolist() == [41, 41]
    assert table[:, -2:].tolist() == [[40, 40], [40, 40]]  # def f ( ) : return
    assert (table[:, 5:11] < 40).all()


def tiny_batch(source: list[list[int]], target: list[list[int]]) -> Batch:
    return Batch(torch.tensor(source), torch.tensor(target), torch.arange(TINY.target_words))


def test_padding_changes_no_loss_and_has_no_gradient() -> None:
    torch.manual_seed(0)
    model = Translator(TINY)
    source, target = [[9, 9, 3, 1]], [[13, 5, 12, 12]]
    loss = model(tiny_batch(source, target))
    loss.backward()
    with torch.no_grad():
        longer = model(tiny_batch(source, [[13, 5, 12, 12, 12, 12]]))
    assert longer.item() == pytest.approx(loss.item(), rel=1e-6)
    for table, row in ((model.source_embedding, 9), (model.target_embedding, 12)):
        gradient = table.weight.grad
        assert gradient is not None
        assert not gradient[row].any()
    touched = model.source_embedding.weight.grad
    assert isinstance(touched, Tensor)
    assert touched.any(dim=1).nonzero().flatten().tolist() == [1, 3]
    assert model.held_out_loss(tiny_batch(source, target)) > 0


def test_deepfm_runs_end_to_end(tmp_path: Path) -> None:
    results = run_example(deepfm.__file__, tmp_path, "--values=2000", "--scheme=hierarchical")
    assert results["scheme"] == "hierarchical"
    assert results["model"] == "DeepFM on synthetic clicks"


def test_translation_runs_end_to_end(tmp_path: Path) -> None:
    results = run_example(translation.__file__, tmp_path)
    dense, sparse = (results["schemes"][contender] for contender in ("ddp", "zensync"))
    key = "bytes_sent_per_rank_per_iteration"
    assert sparse[key] < 0.5 * dense[key]
