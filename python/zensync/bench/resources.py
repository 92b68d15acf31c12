"""What a synchronisation takes of the machine, as Linux counts it."""

import dataclasses
import os
import time
from pathlib import Path

from zensync._network import INTERFACE, Counters, own_counters


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


def processors_per_rank() -> float:
    """torchrun tells how many ranks share a machine, and so does the launcher."""
    return (os.cpu_count() or 1) / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


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
