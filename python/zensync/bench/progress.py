"""Progress on rank 0: a bar on a terminal, otherwise a line for each cell."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Shown:
    """What the ranks tell of their progress. This one keeps it to itself."""

    def describe(self, what: str) -> None:
        """A new cell begins."""

    def advance(self) -> None:
        """Something has been synchronised."""


@contextlib.contextmanager
def shown(title: str, total: int, *, rank: int) -> Iterator[Shown]:
    if rank != 0:
        yield Shown()
        return
    console = Console()
    if not console.is_terminal:
        lines = _Lines(title)
        yield lines
        lines.describe("")
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console, expand=True) as bar:
        task = bar.add_task(title, total=total)

        def advance() -> None:
            bar.advance(task)

        def describe(what: str) -> None:
            bar.update(task, description=f"{title}: {what}")

        yield _Bar(advance, describe)


class _Bar(Shown):
    def __init__(self, advance: Callable[[], None], describe: Callable[[str], None]) -> None:
        self._advance, self._describe = advance, describe

    def advance(self) -> None:
        self._advance()

    def describe(self, what: str) -> None:
        self._describe(what)


class _Lines(Shown):
    """A line when a cell is done."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._what = ""
        self._start = time.perf_counter()

    def describe(self, what: str) -> None:
        if self._what:
            seconds = time.perf_counter() - self._start
            print(f"{self._title}: {self._what}: {seconds:.0f} s", file=sys.stdout, flush=True)
        self._what, self._start = what, time.perf_counter()
