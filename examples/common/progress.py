"""Progress on rank 0: a bar on a terminal, otherwise a line now and then."""

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from common.training import Progress

LINES = 5


@contextlib.contextmanager
def shown(console: Console, title: str, iterations: int, *, rank: int) -> Iterator[Progress]:
    if rank != 0:
        yield lambda done, loss: None
        return
    if not console.is_terminal:
        yield _lines(console, title, iterations)
        return
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]:>10}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Bar(*columns, console=console, expand=True) as bar:
        task = bar.add_task(title, total=iterations, loss="")
        yield lambda done, loss: bar.update(task, completed=done, loss=f"loss {loss:.3f}")


def _lines(console: Console, title: str, iterations: int) -> Progress:
    start = time.perf_counter()
    every = max(1, iterations // LINES)

    def line(done: int, loss: float) -> None:
        if done % every == 0 or done == iterations:
            seconds = time.perf_counter() - start
            console.print(f"{title:<12} {done:>5}/{iterations}  loss {loss:6.3f}  {seconds:4.0f} s")

    return line
