"""Checks of option values and of saved states that several classes share. An error names what it is
about, the value and the remedy."""

from collections.abc import Mapping, Sequence
from typing import Any


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


def check_keys(
    what: str, saved: Mapping[str, Any], required: Sequence[str], optional: Sequence[str] = ()
) -> None:
    """Raises ValueError for keys that are missing or unknown."""
    missing = [key for key in required if key not in saved]
    unknown = [str(key) for key in saved if key not in (*required, *optional)]
    if missing or unknown:
        wrong = [f"lacks {', '.join(missing)}"] if missing else []
        wrong += [f"has the unknown {', '.join(unknown)}"] if unknown else []
        raise ValueError(f"{what} {' and '.join(wrong)}: load what State.state_dict() returned")
