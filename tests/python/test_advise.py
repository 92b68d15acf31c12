"""Profiles, predictions from them, and what `zensync advise` says."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zensync
from zensync import _C, advise, profile
from zensync.advise import prediction
from zensync.advise.prediction import Advice, Cluster
from zensync.advise.verdict import verdict
from zensync.profile import MAX_LOOKS, SKIPPED, Profile, Recorder

ROWS, WIDTH = 4000, 64
GBIT = 10**9


def gradient(seed: int, share: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Whole rows, those below a tenth of the table on every rank."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(ROWS, WIDTH, generator=generator)
    listed = torch.rand(ROWS, generator=generator) < share
    return (values * listed[:, None]).flatten().to(dtype)


def profile_of(gradients: list[torch.Tensor], seconds: float | None = None) -> Profile:
    dtype = str(gradients[0].dtype).removeprefix("torch.")
    looks = [_C.look(one) for one in gradients]
    buckets: list[profile.ProfiledBucket] = [
        {"bucket": 0, "numel": gradients[0].numel(), "dtype": dtype, "looks": looks}
    ]
    return {
        "version": profile.VERSION,
        "ranks": 1,
        "seconds_per_iteration": seconds,
        "buckets": buckets,
    }


def advice(share: float, cluster: Cluster, dtype: torch.dtype = torch.float32) -> Advice:
    return prediction.advise(
        profile_of([gradient(seed, share, dtype) for seed in range(cluster.ranks)]), cluster
    )


def costs(found: Advice) -> dict[str, prediction.Cost]:
    return {cost.name: cost for cost in found.costs}


def cluster(ranks: int, per_node: int = 1, rate: int = GBIT) -> Cluster:
    return Cluster(ranks, per_node, rate, 100 * GBIT)


def test_a_look_tells_densities_and_overlaps() -> None:
    gradients = [gradient(seed, 0.1) for seed in range(4)]
    looks = [_C.look(one) for one in gradients]
    sparsity = _C.Sparsity(looks)
    density = sum(int(one.count_nonzero()) for one in gradients) / 4 / gradients[0].numel()
    union = int(torch.stack(gradients).any(0).sum()) / gradients[0].numel()
    assert sparsity.density() == pytest.approx(density, rel=1e-6)
    assert sparsity.density_of_sum() == pytest.approx(union, rel=0.1)
    assert sparsity.densification(4) == pytest.approx(union / density, rel=0.1)
    together = _C.Sparsity([_C.together(looks[:2]), _C.together(looks[2:])])
    assert together.density_of_sum() == pytest.approx(sparsity.density_of_sum(), rel=0.05)
    with pytest.raises(ValueError, match="of 256000 and 64 elements"):
        _C.Sparsity([looks[0], _C.look(torch.zeros(64))])
    with pytest.raises(ValueError, match="float64"):
        _C.look(torch.zeros(4, dtype=torch.float64))


def test_bytes_are_those_of_the_schemes() -> None:
    found = costs(advice(0.1, cluster(4)))
    numel = ROWS * WIDTH
    assert set(found) >= set(_C.schemes())
    assert found["allreduce"].bytes == pytest.approx(2 * 3 / 4 * 4 * numel)
    # docs/schemes.md: agsparse sends every peer all its pairs of 8 bytes.
    assert found["agsparse"].bytes == pytest.approx(3 * 0.1 * numel * 8, rel=0.2)
    ideal = 3 / 4 * (0.1 + (1 - 0.9**4)) * numel * 4
    assert found["balanced_parallelism"].bytes == pytest.approx(ideal, rel=0.15)
    slower = costs(advice(0.1, cluster(4, rate=GBIT // 100)))
    assert slower["agsparse"].seconds > 50 * found["agsparse"].seconds


def test_ranks_of_a_node_share_its_link_and_add_up_first() -> None:
    flat, nodes = costs(advice(0.1, cluster(8))), costs(advice(0.1, cluster(8, per_node=4)))
    assert nodes["allreduce"] == flat["allreduce"]
    assert nodes["balanced_parallelism"].bytes < flat["balanced_parallelism"].bytes
    assert nodes["balanced_parallelism"].seconds_in_node == pytest.approx(
        2 * 3 / 4 * ROWS * WIDTH * 4 * 8 / (100 * GBIT)
    )
    one_node = costs(advice(0.1, cluster(4, per_node=4)))
    assert one_node["balanced_parallelism"].bytes == 0


def test_verdicts_say_plainly_when_zensync_does_not_help() -> None:
    sparse = advice(0.05, cluster(4))
    assert "times faster than plain DDP" in verdict(sparse, None)
    assert "will hardly help" in verdict(sparse, 100.0)
    fast = advice(1.0, cluster(2, rate=400 * GBIT))
    assert verdict(fast, None).startswith("zensync will not help here: 100.0% of the gradient")
    assert "the link is too fast" in verdict(advice(0.3, cluster(2, rate=400 * GBIT)), None)
    # Exponents pack, so that a slow link gains even from a dense gradient.
    assert advice(1.0, cluster(4, rate=GBIT // 10)).costs[0].packed


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., Path]:
    """Trains with a State that records, in this process alone."""

    def run(iterations: int) -> Path:
        path = tmp_path / "profile.json"
        dist.init_process_group(
            "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
        )
        try:
            model = DistributedDataParallel(nn.EmbeddingBag(500, 16))
            state = zensync.State(profile=path)
            model.register_comm_hook(state, zensync.hook)
            for seed in range(iterations):
                words = torch.randint(500, (4, 5), generator=torch.Generator().manual_seed(seed))
                model(words).sum().backward()
                model.zero_grad()
            state.close()
        finally:
            dist.destroy_process_group()
        return path

    return run


def test_a_run_of_one_process_is_advised(
    train: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = train(SKIPPED + 4)
    recorded = profile.read(path)
    (bucket,) = recorded["buckets"]
    assert bucket["numel"] == 8000
    assert len(bucket["looks"]) == 4
    assert recorded["seconds_per_iteration"]
    plot = tmp_path / "plot.png"
    arguments = [str(path), "--ranks", "2", "4", "--rates", "1mbit", "--plot", str(plot)]
    assert advise.main(arguments) == 0
    said = capsys.readouterr().out
    assert "4 ranks, 1 Mbit/s" in said
    assert "times faster than plain DDP" in said
    assert "allreduce (plain DDP)" in said
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--ranks 1", "1 rank has nobody to synchronise with"),
        ("--ranks 6 --ranks-per-node 4", "6 ranks are no whole number of nodes of 4"),
        ("--ranks 8", "8 ranks need as many recorded iterations, the profile has 4: train for 11"),
        ("--rates fast", "write a number and kbit"),
    ],
)
def test_impossible_wishes_give_one_sentence(
    arguments: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(profile_of([gradient(seed, 0.1) for seed in range(4)])))
    with pytest.raises(SystemExit) as raised:
        advise.main([str(path), *arguments.split()])
    assert raised.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_what_is_no_profile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    with pytest.raises(profile.ProfileError, match="cannot be read"):
        profile.read(path)
    path.write_text('{"version": 0}')
    with pytest.raises(profile.ProfileError, match="version 0, this zensync reads version 1"):
        profile.read(path)
    path.write_text('{"version": 1, "buckets": []}')
    with pytest.raises(profile.ProfileError, match="train for more than 2 iterations"):
        profile.read(path)


def test_recorder_forgets_rebuilt_buckets_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    recorder = Recorder(path, ranks=1)
    for iteration in range(SKIPPED + MAX_LOOKS + 3):
        recorder.see(0, torch.ones(64 if iteration == SKIPPED else 128))
        recorder.see(1, torch.ones(8, dtype=torch.float64))
    (bucket,) = profile.read(path)["buckets"]  # nobody has asked for it to be written
    assert bucket["numel"] == 128
    assert len(bucket["looks"]) == MAX_LOOKS - 1


def test_profile_option_is_checked() -> None:
    with pytest.raises(TypeError, match="profile is 5"):
        zensync.State(profile=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="leave out one of the two"):
        zensync.State(profile="file.json", compressor=zensync.DGC(0.1))
