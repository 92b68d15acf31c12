"""Shaped networks on one machine: a network namespace per host, behind a card of a chosen rate.

    with ShapedNetwork(hosts=4, rate_bits_per_second=parse_rate("1gbit")) as network:
        exit_codes = run_ranks(network, [sys.executable, "train.py"])

Every host is a namespace with one virtual card; the cards meet in a bridge that has a namespace of
its own and no way out, and carry documentation addresses (192.0.2.x, RFC 5737). A token bucket
(tc-tbf) on both ends of every virtual cable limits what the host sends and what it receives, each
on its own: a full-duplex card on a switch that never blocks. Needs root, `ip` and `tc`.

Nothing stays behind: the namespaces, whose names start with the process's own prefix, and the
processes inside are removed when the `with` block ends, by an exception, SIGINT and SIGTERM too. If
this process is killed without a chance to do so, a guard does it: a second process, which waits
for the end of the first.
"""

import contextlib
import dataclasses
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any, Protocol

MAX_HOSTS = 254  # addresses of 192.0.2.0/24
INTERFACE = "e0"  # the card's name inside every host
MTU = 9000  # headers are 0.7 % of the bytes; with 1500 they would be 4.4 %
MIN_BURST = 64 * 1024  # a smaller bucket loses a tenth of the rate to timer granularity
BURST_SECONDS = 0.002
QUEUE = "50ms"  # 10 ms drops packets when several hosts send to one
GRACE_SECONDS = 2.0  # between the first rank that fails, or a SIGTERM, and the next stronger means

_numbers = itertools.count()


class NetworkError(RuntimeError):
    """The network could not be made, or a command that shapes it failed."""


def parse_rate(text: str) -> int:
    """Bits per second of a rate such as 1gbit, 200mbit or 2.5gbit."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg])bit", text.strip().lower())
    rate = round(float(match[1]) * {"k": 1e3, "m": 1e6, "g": 1e9}[match[2]]) if match else 0
    if rate < 1:
        raise ValueError(
            f"rate {text!r} is not understood: write a number and kbit, mbit or gbit, "
            "for example 200mbit"
        )
    return rate


def format_rate(bits_per_second: float) -> str:
    """The opposite of parse_rate, for people: 1 Gbit/s, 200 Mbit/s."""
    for unit, size in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bits_per_second >= size:
            return f"{bits_per_second / size:g} {unit}"
    return f"{bits_per_second:g} bit/s"


@dataclasses.dataclass(frozen=True)
class Counters:
    """Bytes that passed a card, Ethernet and TCP/IP headers included."""

    bytes_out: int
    bytes_in: int

    def __sub__(self, earlier: "Counters") -> "Counters":
        return Counters(self.bytes_out - earlier.bytes_out, self.bytes_in - earlier.bytes_in)


def parse_counters(proc_net_dev: str, interface: str) -> Counters:
    """Reads the text of /proc/net/dev."""
    for line in proc_net_dev.splitlines():
        name, colon, fields = line.partition(":")
        if colon and name.strip() == interface:
            columns = fields.split()
            return Counters(bytes_out=int(columns[8]), bytes_in=int(columns[0]))
    raise NetworkError(f"there is no network interface {interface!r} here")


def own_counters(interface: str = INTERFACE) -> Counters:
    """The counters of a card as a process of that host sees them."""
    return parse_counters(Path("/proc/thread-self/net/dev").read_text(), interface)


class Hosts(Protocol):
    """Where ranks run: what run_ranks() asks of a network."""

    hosts: int
    interface: str

    def address(self, host: int) -> str: ...

    def command(self, host: int, argv: Sequence[str]) -> list[str]: ...


class Loopback:
    """Hosts that are one and the same: this machine, which the others reach by its loopback."""

    interface = "lo"

    def __init__(self, hosts: int) -> None:
        self.hosts = hosts

    def address(self, _: int) -> str:
        return "127.0.0.1"

    def command(self, _: int, argv: Sequence[str]) -> list[str]:
        return list(argv)


class ShapedNetwork:
    """Context manager that makes the hosts and removes them. Used by one thread.

    Rates may change while traffic flows (set_rate). Two networks may exist at once.
    """

    interface = INTERFACE

    def __init__(self, hosts: int, rate_bits_per_second: int) -> None:
        if not 1 <= hosts <= MAX_HOSTS:
            raise ValueError(f"hosts is {hosts}, but must be from 1 to {MAX_HOSTS}")
        if rate_bits_per_second < 1:
            raise ValueError(
                f"rate_bits_per_second is {rate_bits_per_second}, but must be positive"
            )
        self.hosts = hosts
        self.rate_bits_per_second = rate_bits_per_second
        self.prefix = f"zs{os.getpid()}n{next(_numbers)}"
        self._switch = f"{self.prefix}sw"
        self._signals = contextlib.ExitStack()
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "ShapedNetwork":
        self._signals.enter_context(_sigterm_raises())
        try:
            self._guard = _start_guard(self.prefix)
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def namespace(self, host: int) -> str:
        """The host's name for `ip netns exec`."""
        if not 0 <= host < self.hosts:
            raise IndexError(f"host {host} does not exist: there are {self.hosts}")
        return f"{self.prefix}h{host}"

    def address(self, host: int) -> str:
        self.namespace(host)
        return f"192.0.2.{host + 1}"

    def command(self, host: int, argv: Sequence[str]) -> list[str]:
        """The command line that runs argv on a host, in the same process (no wrapper stays)."""
        return ["ip", "netns", "exec", self.namespace(host), *argv]

    def counters(self, host: int) -> Counters:
        return parse_counters(_run(*self.command(host, ["cat", "/proc/net/dev"])), INTERFACE)

    def set_rate(self, host: int, rate_bits_per_second: int) -> None:
        """Changes one host's card, both ways. Packets already queued leave at the new rate."""
        self._shape(host, rate_bits_per_second, "change")

    def _make(self) -> None:
        _run("ip", "netns", "add", self._switch)
        _run("ip", "-n", self._switch, "link", "add", "br0", "type", "bridge")
        _run("ip", "-n", self._switch, "link", "set", "br0", "up", "mtu", str(MTU))
        for host in range(self.hosts):
            self._make_host(host)
        self._wait_until_up()

    def _make_host(self, host: int) -> None:
        name, port, mtu = self.namespace(host), f"p{host}", str(MTU)
        _run("ip", "netns", "add", name)
        card = ["link", "add", INTERFACE, "mtu", mtu, "netns", name, "type", "veth"]
        _run("ip", *card, "peer", "name", port, "mtu", mtu, "netns", self._switch)
        _run("ip", "-n", self._switch, "link", "set", port, "master", "br0", "up")
        _run("ip", "-n", name, "link", "set", "lo", "up")
        _run("ip", "-n", name, "addr", "add", f"{self.address(host)}/24", "dev", INTERFACE)
        _run("ip", "-n", name, "link", "set", INTERFACE, "up")
        self._shape(host, self.rate_bits_per_second, "add")
        # bbr, the default of some machines, collapses when several hosts send to one through a
        # short queue; reno is the one algorithm that every namespace may choose.
        self._set_tcp(host, "tcp_congestion_control", "reno")
        self._set_tcp(host, "tcp_slow_start_after_idle", "0")

    def _set_tcp(self, host: int, option: str, value: str) -> None:
        write = f"echo {value} > /proc/sys/net/ipv4/{option}"
        _run(*self.command(host, ["sh", "-c", write]))

    def _shape(self, host: int, rate: int, verb: str) -> None:
        burst = max(MIN_BURST, int(rate / 8 * BURST_SECONDS))
        limits = ["rate", f"{rate}bit", "burst", f"{burst}b", "latency", QUEUE]
        for namespace, device in ((self.namespace(host), INTERFACE), (self._switch, f"p{host}")):
            _run("tc", "-n", namespace, "qdisc", verb, "dev", device, "root", "tbf", *limits)

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + 10
        while _run("ip", "-n", self._switch, "link", "show", "master", "br0").count("state UP") < (
            self.hosts
        ):
            if time.monotonic() > deadline:
                raise NetworkError("the virtual cards did not come up within 10 seconds")
            time.sleep(0.02)

    def _remove(self) -> None:
        with _signals_held():
            _remove_namespaces(self.prefix)
            if self._guard is not None:
                assert self._guard.stdin is not None
                self._guard.stdin.close()  # it finds nothing left to do
                self._guard.wait()
            self._signals.close()


def available() -> str | None:
    """None if shaped networks can be made here, otherwise the reason why not, in one sentence."""
    if sys.platform != "linux":
        return "network namespaces exist on Linux only"
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"the command {missing[0]!r} is missing: install iproute2"
    try:
        with ShapedNetwork(hosts=1, rate_bits_per_second=10**9):
            return None
    except NetworkError as error:
        return f"this machine refuses network namespaces: {error}"


def run_ranks(
    network: Hosts,
    argv: Sequence[str],
    *,
    ranks_per_host: int = 1,
    environment: Mapping[str, str] | None = None,
    port: int = 29500,
) -> list[int]:
    """Runs argv on every host, as torchrun would, and returns the exit codes in rank order.

    Ranks of one host follow one another, and reach each other by the host's loopback.
    Rank 0 has this process's output. When a rank fails, the others have GRACE_SECONDS to end by
    themselves, then they are ended; their codes are negative signal numbers, as subprocess has
    them. The output of all that failed by themselves is shown on stderr (rank 0's was shown
    already), because the one that is the cause need not be the one that ends first. Ranks are
    ended, too, when this function is left by an exception.
    """
    with contextlib.ExitStack() as stack:
        ranks = network.hosts * ranks_per_host
        outputs: list[IO[bytes] | None] = [None]
        outputs += [stack.enter_context(tempfile.TemporaryFile()) for _ in range(1, ranks)]
        processes: list[subprocess.Popen[bytes]] = []
        stack.callback(_end, processes)
        for rank, output in enumerate(outputs):
            given = {**os.environ, **(environment or {})}
            variables = given | _variables(network, rank, ranks_per_host, port)
            command = network.command(rank // ranks_per_host, argv)
            processes.append(_start(command, variables, output))
        if _wait_for_failure(processes):
            _wait_all(processes, GRACE_SECONDS)
            for rank, (process, output) in enumerate(zip(processes, outputs, strict=True)):
                if process.poll():
                    _show_failure(rank, process.returncode, output)
        _end(processes)
        return [process.returncode for process in processes]


def _start(
    argv: Sequence[str], variables: Mapping[str, str], output: IO[bytes] | None
) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C reaches this process only, which ends the ranks.
    return subprocess.Popen(
        argv,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        start_new_session=True,
    )


def _variables(network: Hosts, rank: int, ranks_per_host: int, port: int) -> dict[str, str]:
    return {
        "MASTER_ADDR": network.address(0),
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % ranks_per_host),
        "WORLD_SIZE": str(network.hosts * ranks_per_host),
        "LOCAL_WORLD_SIZE": str(ranks_per_host),
        "GROUP_RANK": str(rank // ranks_per_host),
        "GROUP_WORLD_SIZE": str(network.hosts),
        "GLOO_SOCKET_IFNAME": network.interface,
    }


def _wait_for_failure(processes: Sequence[subprocess.Popen[bytes]]) -> bool:
    """True as soon as one has failed, false when all have succeeded."""
    while True:
        codes = [process.poll() for process in processes]
        if any(codes):
            return True
        if all(code == 0 for code in codes):
            return False
        time.sleep(0.05)


def _show_failure(rank: int, code: int, output: IO[bytes] | None) -> None:
    ending = f"signal {-code}" if code < 0 else f"exit code {code}"
    print(f"rank {rank} failed with {ending}", file=sys.stderr)
    if output is not None:
        output.seek(0)
        sys.stderr.write(output.read().decode(errors="replace"))
    sys.stderr.flush()


def _wait_all(processes: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(p.poll() is None for p in processes) and time.monotonic() < deadline:
        time.sleep(0.02)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for stop in (signal.SIGTERM, signal.SIGKILL):
        running = [process for process in processes if process.poll() is None]
        for process in running:
            process.send_signal(stop)
        _wait_all(running, GRACE_SECONDS)


def _start_guard(prefix: str) -> subprocess.Popen[bytes]:
    """This file as a program, without torch: it removes what is left when its input ends."""
    return subprocess.Popen(
        [sys.executable, "-I", __file__, prefix],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _remove_namespaces(prefix: str) -> None:
    present = _namespaces(prefix)
    _end_processes(present)
    for name in present:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _end_processes(namespaces: Sequence[str]) -> None:
    """Ends what runs inside: a namespace lives as long as a process in it, deleted or not."""
    for stop in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + GRACE_SECONDS
        pids = [pid for name in namespaces for pid in _processes(name)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, stop)
        while any(map(_is_running, pids)) and time.monotonic() < deadline:
            time.sleep(0.02)


def _is_running(pid: int) -> bool:
    """False for a zombie: it is dead, only its parent has not noticed."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def _processes(namespace: str) -> list[int]:
    return [int(pid) for pid in _output("ip", "netns", "pids", namespace).split()]


def _namespaces(prefix: str) -> list[str]:
    lines = _output("ip", "netns", "list").splitlines()
    names = (line.split()[0] for line in lines if line.strip())
    return [name for name in names if re.fullmatch(rf"{prefix}(sw|h\d+)", name)]


def _output(*argv: str) -> str:
    """Of a command that may fail: whoever removes a network removes as much of it as is there."""
    return subprocess.run(argv, check=False, capture_output=True, text=True).stdout


def _run(*argv: str) -> str:
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())
        raise NetworkError(f"`{' '.join(argv)}` failed: {said or f'exit code {done.returncode}'}")
    return done.stdout


@contextlib.contextmanager
def _sigterm_raises() -> Iterator[None]:
    """SIGTERM leaves `with` blocks like Ctrl-C does. Only the main thread may change handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _: FrameType | None) -> Any:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the block ends; child processes inherit that."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


if __name__ == "__main__":  # the guard: see _start_guard()
    sys.stdin.read()
    _remove_namespaces(sys.argv[1])
