"""Pairs to translate that every Python installation carries: what a function of its library says
that it does, and what it does. The source is the docstring, the target the code after it, comments
included, headed by the signature.

    source  Return a string of the same length ...
    target  def fnmatch ( name , pat ) : name = os . path . normcase ( name ) ...

This is no natural translation: English to Python, a few thousand pairs, most of which nobody could
translate exactly. What matters here is as in translation: two languages with a vocabulary each, and
real text in both.
"""

import ast
import dataclasses
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor

from common import corpus


@dataclasses.dataclass(frozen=True)
class Lengths:
    source: int  # words of a source that are read
    target: int


def functions(text: str) -> Iterator[tuple[str, str]]:
    """Docstring and code of every function of a Python file that has both."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python has to say about the text
            tree = ast.parse(text)
    except SyntaxError:  # some files of the library are broken on purpose
        return
    lines = text.splitlines()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or len(node.body) < 2:
            continue
        if docstring := ast.get_docstring(node):
            signature = lines[node.lineno - 1 : node.body[0].lineno - 1]
            code = lines[node.body[0].end_lineno : node.end_lineno]
            yield docstring, "\n".join([*signature, *code])


def read(source_words: int, target_words: int, lengths: Lengths) -> Tensor:
    """Pairs x (source + 1 + target) numbers, int64.

    Words of each language are numbered by falling frequency in all of its text; the last number
    below `source_words` or `target_words` stands for the rarer ones, `source_words` and
    `target_words` themselves are padding. Sources are padded in front, so that what an LSTM read
    last is a word, targets at the end; in front of the targets stands a start, target_words + 1.
    """
    found = [pair for text in corpus.sources() for pair in functions(text)]
    sources, targets = (
        [corpus.tokenize(text) for text in side] for side in zip(*found, strict=True)
    )
    pad, target_pad, start = source_words, target_words, target_words + 1
    rows = []
    for source, target in zip(
        _encode(sources, source_words), _encode(targets, target_words), strict=True
    ):
        head = source[: lengths.source]
        code = target[: lengths.target]
        rows.append(
            [pad] * (lengths.source - len(head))
            + head
            + [start]
            + code
            + [target_pad] * (lengths.target - len(code))
        )
    return torch.tensor(rows)


def _encode(texts: list[list[str]], vocabulary_size: int) -> list[list[int]]:
    ids = corpus.encode([token for text in texts for token in text], vocabulary_size)
    return [part.tolist() for part in ids.split([len(text) for text in texts])]
