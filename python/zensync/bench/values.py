"""What single options of the command line are read as. Refusals are argparse's to show."""

import argparse
from collections.abc import Callable

from zensync._network import parse_rate
from zensync.bench import contenders

UNSHAPED = "unshaped"


def whole(low: int, high: int) -> Callable[[str], int]:
    def parse_number(text: str) -> int:
        if not text.strip().lstrip("-").isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return parse_number


def elements(text: str) -> int:
    number, factor = text, 1
    if text[-1:] in "KMG" and text:
        number, factor = text[:-1], {"K": 2**10, "M": 2**20, "G": 2**30}[text[-1]]
    if not number.isdecimal() or not 0 < int(number) * factor < 2**35:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of elements: write it out, or with K, M or G (powers of "
            "1024), for example 8M"
        )
    return int(number) * factor


def density(text: str) -> float:
    try:
        density = float(text)
    except ValueError:
        density = -1
    if not 0 < density <= 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a density: write a number above 0, up to 1"
        )
    return density


def rate(text: str) -> int | None:
    if text == UNSHAPED:
        return None
    try:
        return parse_rate(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, or {UNSHAPED}") from error


def scheme(text: str) -> str:
    try:
        contenders.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text
