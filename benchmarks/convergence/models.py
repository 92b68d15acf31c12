"""What is trained: two language models on real text and a click model on synthetic clicks."""

import abc

import torch
from torch import Tensor, nn
from torch.nn import functional

from click_model.model import Batch, DeepFM
from click_model.synthetic import SyntheticClicks
from common import corpus
from language_model.model import WordLstm

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


class Lstm(LanguageTask):
    width = 64
    learning_rate = 1.0
    clip_norm = 1.0
    iterations = 800

    def model(self) -> nn.Module:
        return nn.Sequential(WordLstm(VOCABULARY, self.width), nn.Linear(self.width, VOCABULARY))


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


class Clicks(Task):
    """26 fields of as many values each."""

    learning_rate = 0.2
    iterations = 500
    fields, values = 26, 1000
    batch = 128

    def __init__(self) -> None:
        self._clicks = SyntheticClicks([self.values] * self.fields)
        self._held_out = self._clicks.draw(4000, torch.Generator().manual_seed(1))

    def model(self) -> nn.Module:
        return DeepFM(self._clicks.rows, self.fields, width=8, hidden=(64, 32))

    def loss(self, model: nn.Module, generator: torch.Generator) -> Tensor:
        return self._mean(model, self._clicks.draw(self.batch, generator))

    def held_out_loss(self, model: nn.Module) -> float:
        return float(self._mean(model, self._held_out))

    @staticmethod
    def _mean(model: nn.Module, batch: Batch) -> Tensor:
        loss: Tensor = model(batch)
        return loss


TASKS: dict[str, type[Task]] = {"lstm": Lstm, "llama": Llama, "deepfm": Clicks}
