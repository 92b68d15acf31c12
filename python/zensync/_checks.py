"""Checks of option values that several classes share. An error names the option, the value and the
remedy."""

from collections.abc import Sequence


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raises ValueError."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}: choose one of {', '.join(choices)}")


def check_range(name: str, value: int, low: int, high: int | None = None) -> None:
    """Raises TypeError for what is no whole number, ValueError outside `low` to `high`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}: it must be a whole number")
    if value < low or (high is not None and value > high):
        allowed = f"at least {low}" if high is None else f"{low} to {high}"
        raise ValueError(f"{name} is {value}: it must be {allowed}")
