"""The demo's text, batches, model, comparison and report; then all of it, once, on two ranks."""

import dataclasses
import itertools
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from example_runs import check_results, rankless_environment, run_example
from rich.console import Console
from torch.nn import functional

import word_language_model
from common import command_line, corpus, exactness, plot, report
from common.comparison import Comparison, max_difference
from common.exactness import Exactness, Layer, layer_of
from common.popularity import LogUniform
from common.training import Run, median_seconds
from language_model.batches import HELD_OUT_SEQUENCES, Batches
from language_model.model import Batch, LanguageModel, Size
from word_language_model import EXAMPLE

EXAMPLES = Path(word_language_model.__file__).parent
TINY = Size(vocabulary=50, width=8, sequences=2, length=3, negatives=6)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def batches(rank: int = 0, ranks: int = 2, seed: int = 1, words: int = 4 * 200) -> Batches:
    """Over a text whose words are 0, 1, 2, ...: a sequence is known by its first word."""
    return Batches(torch.arange(words), TINY, rank=rank, ranks=ranks, seed=seed)


def tiny_batch(seed: int = 0, negatives: torch.Tensor | None = None) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(0, TINY.vocabulary, (2, TINY.length + 1), generator=generator)
    if negatives is None:
        negatives = LogUniform(TINY.vocabulary).draw(TINY.negatives, generator)
    return Batch(words[:, :-1], words[:, 1:], negatives)


def run(bytes_sent: float, *parameters: float, card: float | None = None) -> Run:
    return Run(
        losses=[9.0, 8.0, 7.5],
        seconds=[0.3, 0.2, 0.2],
        held_out_loss=8.1,
        bytes_sent=bytes_sent,
        card_bytes_sent=card,
        parameters=[torch.tensor(parameters or (1.0, 2.0))],
    )


def comparison(card: float | None = None) -> Comparison:
    return Comparison(
        title="LSTM language model, small",
        loss_unit="nats per word",
        seed=1,
        ranks=4,
        rate_bits_per_second=None if card is None else 10**9,
        runs={"ddp": run(60e6, card=card), "zensync": run(2e6, card=card)},
        seconds_computing=0.1,
        exactness=Exactness(
            [Layer("input_embedding", 1000, 10, 30), Layer("lstm", 100, 100, 100)],
            difference=1e-9,
            share_of_bound={"ddp": 0.25, "zensync": 0.5},
        ),
        max_parameter_difference=1e-6,
        same_on_all_ranks=True,
    )


def test_tokenize_separates_words_numbers_and_punctuation() -> None:
    assert corpus.tokenize("def f_1(x):\n    return x+10  # é") == [
        *("def", "f_", "1", "(", "x", ")", ":", "return", "x", "+", "10", "#", "é")
    ]


def test_encode_numbers_by_frequency_then_spelling_and_keeps_the_last_for_the_rare() -> None:
    ids = corpus.encode(list("cabacabd"), vocabulary_size=4)
    assert ids.tolist() == [2, 0, 1, 0, 2, 0, 1, 3]  # a 3 times; b, c twice; d has no id of its own
    assert corpus.encode(list("aab"), vocabulary_size=10).tolist() == [0, 0, 1]


def test_documents_come_in_the_same_order_each_time() -> None:
    first = list(itertools.islice(corpus.documents(), 120))
    assert first == list(itertools.islice(corpus.documents(), 120))
    assert all(first)


@pytest.mark.parametrize("count", [0, 1, 5, 1000])
def test_negatives_are_distinct_ascending_words(count: int) -> None:
    drawn = LogUniform(50).draw(count, torch.Generator().manual_seed(3))
    assert drawn.tolist() == sorted(set(drawn.tolist()))
    assert all(0 <= word < 50 for word in drawn.tolist())
    assert len(drawn) <= count


def test_chances_of_one_draw_add_up_to_one() -> None:
    assert LogUniform(50).log_chance(torch.arange(50), 1).exp().sum() == pytest.approx(1, abs=1e-5)


def test_chance_is_how_often_a_word_is_drawn() -> None:
    sampler, generator, trials = LogUniform(50), torch.Generator().manual_seed(5), 4000
    seen = torch.zeros(50)
    for _ in range(trials):
        seen[sampler.draw(6, generator)] += 1
    chance = sampler.log_chance(torch.arange(50), 6).exp()
    sigma = (chance * (1 - chance) / trials).sqrt()
    assert ((seen / trials - chance).abs() <= 5 * sigma).all()


def test_only_rows_of_the_batch_have_gradients() -> None:
    torch.manual_seed(0)
    model, batch = LanguageModel(TINY), tiny_batch()
    model(batch).backward()
    for table, used in (
        (model.reader.input_embedding, batch.words.flatten()),
        (model.output_embedding, torch.cat([batch.next_words.flatten(), batch.negatives])),
    ):
        gradient = table.weight.grad
        assert gradient is not None
        assert gradient.layout == torch.strided
        touched = gradient.any(dim=1).nonzero().flatten().tolist()
        assert set(touched) == set(used.tolist())


def test_sampled_softmax_with_all_words_is_the_full_one() -> None:
    torch.manual_seed(0)
    # So many draws that every word is certain to be among them: no correction is left.
    model = LanguageModel(dataclasses.replace(TINY, negatives=10**7))
    batch = tiny_batch(negatives=torch.arange(TINY.vocabulary))
    logits = model.reader(batch.words).flatten(0, 1) @ model.output_embedding.weight.T
    expected = functional.cross_entropy(logits, batch.next_words.flatten())
    assert model(batch).item() == pytest.approx(expected.item(), rel=1e-5)
    held_out = model.held_out_loss(batch.words, batch.next_words)
    assert held_out.item() == pytest.approx(expected.item(), rel=1e-6)


def test_batches_depend_on_seed_rank_and_iteration_alone() -> None:
    def batch(**where: int) -> list[list[int]]:
        iteration = where.pop("iteration", 0)
        found = batches(**where).batch(iteration)
        return [found.words.flatten().tolist(), found.negatives.tolist()]

    assert batch() == batch()
    assert batch() != batch(seed=2)
    assert batch() != batch(rank=1)
    assert batch() != batch(iteration=1)


def test_next_words_are_the_words_after() -> None:
    batch = batches().batch(0)
    assert torch.equal(batch.next_words, batch.words + 1)


def test_an_epoch_uses_every_sequence_once_and_never_a_held_out_one() -> None:
    ranks = [batches(rank=rank) for rank in range(2)]
    held_out = [first for b in ranks for first in b.held_out()[0][:, 0].tolist()]
    iterations = (200 - 2 * HELD_OUT_SEQUENCES) // (2 * TINY.sequences)
    trained = [
        first
        for iteration in range(iterations)
        for b in ranks
        for first in b.batch(iteration).words[:, 0].tolist()
    ]
    assert sorted(trained + held_out) == list(range(0, 800, 4))
    again = ranks[0].batch(iterations).words
    assert torch.equal(again, ranks[0].batch(0).words)


def test_batches_refuse_a_text_that_is_too_short() -> None:
    with pytest.raises(ValueError, match="140 words are too few for a batch on each of 2 ranks"):
        batches(words=140)


@pytest.mark.parametrize(
    ("seconds", "median"),
    [([9.0], 9), ([9.0, 9, 1, 2, 3, 1, 1, 2], 1.5), ([9.0] * 10 + [1.0] * 30, 1)],
)
def test_median_leaves_out_the_warm_up(seconds: list[float], median: float) -> None:
    assert median_seconds(seconds) == median


@pytest.mark.usefixtures("group")
def test_bound_of_the_mean_holds_for_exact_results_and_fails_for_wrong_ones() -> None:
    gradient = torch.tensor([1.0, -3.0, 0.0, 1e-30])
    exact, bound = exactness.exact_mean_and_bound(gradient)
    assert exactness.share_of_bound(gradient, exact, bound) == 0
    next_float = torch.nextafter(gradient[:2], torch.tensor(9.0))
    assert 0 < exactness.share_of_bound(next_float, exact[:2], bound[:2]) <= 1
    assert exactness.share_of_bound(gradient * 1.001, exact, bound) > 1
    not_zero = torch.tensor([1.0, -3.0, 1e-38, 1e-30])
    assert exactness.share_of_bound(not_zero, exact, bound) == math.inf
    not_a_number = torch.tensor([1.0, math.nan, 0.0, 1e-30])
    assert math.isnan(exactness.share_of_bound(not_a_number, exact, bound))


def test_layers_are_the_innermost_modules_with_names() -> None:
    assert layer_of("reader.lstm.weight_ih_l0") == "lstm"
    assert layer_of("deep.0.bias") == "deep"


@pytest.mark.usefixtures("group")
def test_largest_parameter_difference() -> None:
    assert max_difference(run(1, 1.0, 2.0), run(1, 1.5, 2.0)) == 0.5
    assert max_difference(run(1, 1.0, 2.0), run(1, math.nan, 2.0)) == math.inf


def shares(**share_of_bound: float) -> Exactness:
    return Exactness([], 0, share_of_bound)


def test_comparison_fails_for_each_thing_that_should_be_equal() -> None:
    good = comparison()
    assert good.failures() == []
    for change, words in (
        ({"max_parameter_difference": 1e-3}, "differ by 0.001 after 3 iterations"),
        ({"max_parameter_difference": math.nan}, "differ by nan"),
        ({"same_on_all_ranks": False}, "not identical"),
        (
            {"exactness": shares(ddp=0.5, zensync=1.5)},
            "zensync's gradients are 1.5",
        ),
        (
            {"exactness": shares(ddp=math.nan, zensync=0.5)},
            "DDP's gradients are nan",
        ),
    ):
        (failure,) = dataclasses.replace(good, **change).failures()
        assert words in failure


def test_results_have_the_promised_keys(tmp_path: Path) -> None:
    report.write_results(comparison(), tmp_path / "results.json")
    check_results(json.loads((tmp_path / "results.json").read_text()), ranks=4)


@pytest.mark.parametrize("card", [None, 61e6])
def test_report_fits_its_width(card: float | None, tmp_path: Path) -> None:
    console = Console(width=report.WIDTH, record=True, file=(tmp_path / "out").open("w"))
    report.print_report(console, comparison(card), Path("runs/demo"))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= report.WIDTH
    assert "30.00" in text  # the ratio of bytes
    assert ("network card" in text) == (card is not None)


def test_plot_is_a_png(tmp_path: Path) -> None:
    plot.write_plot(comparison(), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--ranks 1", "'1' is not a whole number from 2 to 64"),
        ("--ranks many", "'many'"),
        ("--iterations 0", "--iterations: '0'"),
        ("--rate fast", "write a number and kbit, mbit or gbit"),
        ("--model huge", "'huge'"),
        ("--seed -1", "--seed"),
        ("--bytes 5", "--bytes"),
        ("--scheme fastest", "'fastest'"),
        ("--scheme allreduce --compressor dgc", "scheme 'allreduce' sends every element"),
        ("--density 0.1", "--density belongs to --compressor dgc"),
    ],
)
def test_wrong_options_give_one_sentence(
    arguments: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        command_line.parse(EXAMPLE, arguments.split())
    assert raised.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_rate_is_refused_with_the_reason_where_namespaces_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("zensync._network.available", lambda: "it needs root")
    options = command_line.parse(EXAMPLE, ["--rate", "1gbit", "--output", str(tmp_path)])
    assert command_line.launch(options) == 2
    assert "--rate cannot be used: it needs root." in capsys.readouterr().err


def test_output_that_cannot_be_made_is_refused_before_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    options = command_line.parse(EXAMPLE, ["--output", str(tmp_path / "file")])
    assert command_line.launch(options) == 2
    assert "--output cannot be used" in capsys.readouterr().err


def test_rate_is_refused_under_torchrun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    options = command_line.parse(EXAMPLE, ["--rate", "1gbit"])
    assert command_line.train(EXAMPLE, options) == 2
    assert "start it without torchrun" in capsys.readouterr().err


def test_demo_runs_end_to_end(tmp_path: Path) -> None:
    results = run_example(word_language_model.__file__, tmp_path)
    dense, sparse = (results["schemes"][contender] for contender in ("ddp", "zensync"))
    key = "bytes_sent_per_rank_per_iteration"
    assert sparse[key] < 0.5 * dense[key]


def readme_usage() -> list[str]:
    """The lines of the README's first example, comments and empty lines left out."""
    readme = (EXAMPLES.parent / "README.md").read_text()
    block = readme.split("```python\n")[1].split("```")[0]
    return [line for line in block.splitlines() if line and not line.startswith("#")]


def test_minimal_example_is_what_the_readme_shows() -> None:
    lines = [line.strip() for line in (EXAMPLES / "minimal.py").read_text().splitlines()]
    usage = readme_usage()
    assert len(usage) >= 5
    for line in usage:
        assert line in lines


def test_minimal_example_runs() -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    done = subprocess.run(
        [*torchrun, str(EXAMPLES / "minimal.py")],
        env=rankless_environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "zensync, iteration 20" in done.stdout
