"""Real text that every Python installation carries: its documentation's topics and its own library.

Words, identifiers and punctuation are tokens. Token ids are sorted by frequency, the commonest
first: embedding tables of real models are laid out like that, and it is what makes the non-zero
rows of their gradients crowd at one end.
"""

import re
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from pydoc_data.topics import topics

import torch
import torch.distributed as dist
from torch import Tensor

TOKEN = re.compile(r"[A-Za-z_]+|\d+|[^\sA-Za-z_\d]")

# Not text that people write: tables of characters, the topics once more, generated parsers, other
# people's packages. Some distributions leave the tests out, so nobody gets them.
SKIPPED_FOLDERS = {
    "dist-packages",
    "encodings",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
}


def tokenize(text: str) -> list[str]:
    return TOKEN.findall(text)


def documents() -> Iterator[str]:
    """In the same order wherever the same Python is installed."""
    for name in sorted(topics):
        yield topics[name]
    yield from sources()


def sources() -> Iterator[str]:
    """The library's files."""
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        if not SKIPPED_FOLDERS.intersection(path.relative_to(library).parts[:-1]):
            yield path.read_text(encoding="utf-8", errors="replace")


def encode(tokens: list[str], vocabulary_size: int) -> Tensor:
    """Numbers tokens by falling frequency, equally frequent ones by spelling.

    Ids are below vocabulary_size; its last one stands for all tokens too rare for one of their own.
    """
    counts = Counter(tokens)
    by_frequency = sorted(counts, key=lambda token: (-counts[token], token))
    rare = vocabulary_size - 1
    ids = {token: number for number, token in enumerate(by_frequency[:rare])}
    return torch.tensor([ids.get(token, rare) for token in tokens])


def read(vocabulary_size: int) -> Tensor:
    """The whole text as token ids, int64."""
    return encode([token for text in documents() for token in tokenize(text)], vocabulary_size)


def from_rank_0(read: Callable[[], Tensor]) -> Tensor:
    """Collective: rank 0 reads int64 numbers below 2^31, of any shape, and the others get them.
    Without a process group this process reads."""
    if not dist.is_initialized():
        return read()
    ids = read().to(torch.int32) if dist.get_rank() == 0 else torch.empty(0, dtype=torch.int32)
    shape = [ids.shape]
    dist.broadcast_object_list(shape, src=0)
    if dist.get_rank() != 0:
        ids = torch.empty(shape[0], dtype=torch.int32)
    dist.broadcast(ids, src=0)
    return ids.long()
