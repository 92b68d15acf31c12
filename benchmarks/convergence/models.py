"""What is trained: two language models on real text and a click model on synthetic clicks."""

import abc
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from language_model import corpus

VOCABULARY = 1000


class Task(abc.ABC):
    """A model, its batches and how it is optimised."""

    learning_rate: float
    momentum = 0.9
    clip_norm: float | None = None
    iterations: int

    @abc.abstractmethod
    def model(self) -> nn.Module: ...

    @abc.abstractmethod
    def loss(self, model: nn.Module, generator: torch.Generator) -> Tensor:
        """Of a batch drawn with `generator`."""

    @abc.abstractmethod
    def held_out_loss(self, model: nn.Module) -> float: ...


class LanguageTask(Task):
    """The documentation and the library of this Python, words as tokens."""

    length = 16
    sequences = 4

    def __init__(self) -> None:
        ids = corpus.read(VOCABULARY)
        held_out = 100 * (self.length + 1)
        # From the middle, so that it is like the rest.
        middle = len(ids) // 2
        self._held_out = ids[middle : middle + held_out].view(100, self.length + 1)
        self._train = torch.cat([ids[:middle], ids[middle + held_out :]])

    def loss(self, model: nn.Module, generator: torch.Generator) -> Tensor:
        starts = torch.randint(
            len(self._train) - self.length, (self.sequences, 1), generator=generator
        )
        return self._cross_entropy(model, self._train[starts + torch.arange(self.length + 1)])

    def held_out_loss(self, model: nn.Module) -> float:
        return float(self._cross_entropy(model, self._held_out))

    def _cross_entropy(self, model: nn.Module, text: Tensor) -> Tensor:
        logits = self.logits(model, text[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())

    def logits(self, model: nn.Module, text: Tensor) -> Tensor:
        result: Tensor = model(text)
        return result


class LstmModel(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, VOCABULARY)

    def forward(self, text: Tensor) -> Tensor:
        result: Tensor = self.out(self.lstm(self.table(text))[0])
        return result


class Lstm(LanguageTask):
    learning_rate = 1.0
    clip_norm = 1.0
    iterations = 800

    def model(self) -> nn.Module:
        return LstmModel()


class Llama(LanguageTask):
    learning_rate = 0.1
    clip_norm = 1.0
    iterations = 600

    def model(self) -> nn.Module:
        from transformers import LlamaConfig, LlamaForCausalLM

        model: nn.Module = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=VOCABULARY,
                hidden_size=64,
                intermediate_size=172,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=64,
            )
        )
        return model

    def logits(self, model: nn.Module, text: Tensor) -> Tensor:
        result: Tensor = model(input_ids=text, use_cache=False).logits
        return result


FIELDS = 26


class DeepFmModel(nn.Module):
    """Guo et al., IJCAI 2017: a factorisation machine and a deep part over the same embeddings."""

    def __init__(self, values: int, width: int = 8) -> None:
        super().__init__()
        self.first_order = nn.Embedding(FIELDS * values, 1)
        self.table = nn.Embedding(FIELDS * values, width)
        nn.init.normal_(self.table.weight, std=0.05)
        nn.init.zeros_(self.first_order.weight)
        self.deep = nn.Sequential(
            nn.Linear(FIELDS * width, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
        )

    def forward(self, features: Tensor) -> Tensor:
        vectors = self.table(features)
        squares = vectors.sum(1).square() - vectors.square().sum(1)
        result: Tensor = (
            self.first_order(features).sum((1, 2))
            + squares.sum(1) / 2
            + self.deep(vectors.flatten(1)).squeeze(1)
        )
        return result


class DeepFm(Task):
    """Clicks as Criteo's look: 26 fields whose values follow Zipf's law, a quarter clicked.

    The truth is a factorisation machine with noise.
    """

    learning_rate = 0.2
    iterations = 500
    values = 1000
    batch = 128

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        rows = FIELDS * self.values
        self._weights = torch.randn(rows, generator=generator) * 0.25
        self._vectors = torch.randn(rows, 4, generator=generator) * 0.12
        self._held_out = self._draw(4000, torch.Generator().manual_seed(1))

    def model(self) -> nn.Module:
        return DeepFmModel(self.values)

    def loss(self, model: nn.Module, generator: torch.Generator) -> Tensor:
        return self._cross_entropy(model, *self._draw(self.batch, generator))

    def held_out_loss(self, model: nn.Module) -> float:
        return float(self._cross_entropy(model, *self._held_out))

    @staticmethod
    def _cross_entropy(model: nn.Module, features: Tensor, clicked: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(model(features), clicked)

    def _draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        uniform = torch.rand(count, FIELDS, generator=generator)
        values = ((uniform * math.log(self.values + 1)).exp() - 1).long().clamp(max=self.values - 1)
        features = values + torch.arange(FIELDS) * self.values
        vectors = self._vectors[features]
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        odds = self._weights[features].sum(1) + pairs - 1.2
        clicked = torch.rand(count, generator=generator) < torch.sigmoid(odds)
        return features, clicked.float()


TASKS: dict[str, type[Task]] = {"lstm": Lstm, "llama": Llama, "deepfm": DeepFm}
