"""What a synchronisation takes of the machine, as Linux counts it."""

import dataclasses
import os
import time
from pathlib import Path

from zensync._network import INTERFACE, Counters, own_counters

RANKS_HERE = "ZENSYNC_BENCH_RANKS_HERE"  # set by the launcher, whose hosts are one machine


@dataclasses.dataclass(frozen=True)
class Usage:
    """Counters that only grow; differences of them mean something."""

    busy_ticks: int  # of the machine's processors, whoever used them
    all_ticks: int
    processor_seconds: float  # of this process, all threads
    card: Counters | None  # None where this rank has no card of its own


def usage() -> Usage:
    busy, everything = cpu_ticks()
    return Usage(busy, everything, time.process_time(), card_counters())


def ranks_here() -> int:
    """Ranks that share this machine. The launcher tells, or torchrun."""
    return int(os.environ.get(RANKS_HERE) or os.environ.get("LOCAL_WORLD_SIZE", "1"))


def processors_per_rank() -> float:
    return (os.cpu_count() or 1) / ranks_here()


def cpu_ticks() -> tuple[int, int]:
    """Busy and all ticks of the machine's processors since it was started, everybody's."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    everything = sum(fields[:8])  # user to steal; guests are counted in user already
    idle = fields[3] + fields[4]
    return everything - idle, everything


def card_counters() -> Counters | None:
    """None where this rank has no card of its own."""
    if os.environ.get("GLOO_SOCKET_IFNAME") != INTERFACE:
        return None
    return own_counters()


def reset_peak_memory() -> None:
    """From now on peak_memory() is the peak since this call."""
    Path("/proc/self/clear_refs").write_text("5")


def resident_memory() -> int:
    """Bytes of this process that are in memory now."""
    return _status("VmRSS")


def peak_memory() -> int:
    """The most that resident_memory() has been."""
    return _status("VmHWM")


def available_memory() -> int:
    """Bytes that new processes can have without swapping."""
    return _kilobytes(Path("/proc/meminfo").read_text(), "MemAvailable")


def _status(name: str) -> int:
    return _kilobytes(Path("/proc/self/status").read_text(), name)


def _kilobytes(text: str, name: str) -> int:
    for line in text.splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"this system does not tell {name}")
