"""Shaped networks: rates, addresses, what is left behind. Lower bounds of times only: that a limit
holds is a property of the shaper, how close one comes to it is the machine's.
"""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from zensync._network import (
    MIN_BURST,
    Counters,
    NetworkError,
    ShapedNetwork,
    available,
    format_rate,
    own_counters,
    parse_counters,
    parse_rate,
    run_ranks,
)

why_not = available()
needs_namespaces = pytest.mark.skipif(why_not is not None, reason=str(why_not))

RATE = parse_rate("200mbit")
MEGABYTE = 1_000_000

# Sends argv[2] bytes to argv[1] and reads one byte that says all have arrived: prints the seconds.
SENDER = """
import socket, sys, time
start = time.monotonic()
with socket.create_connection((sys.argv[1], 7000)) as connection:
    connection.sendall(bytes(int(sys.argv[2])))
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(1) == b"x"
print(time.monotonic() - start)
"""
RECEIVER = """
import socket, sys
with socket.create_server(("", 7000)) as server:
    print("listening", flush=True)
    connection, _ = server.accept()
    with connection:
        while connection.recv(1 << 16):
            pass
        connection.sendall(b"x")
"""
HOLDER = """
import time
from zensync._network import ShapedNetwork
with ShapedNetwork(hosts=2, rate_bits_per_second=10**9) as network:
    print(network.prefix, flush=True)
    time.sleep(1e6)
"""


def python(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


def seconds_to_send(network: ShapedNetwork, source: int, target: int, size: int) -> float:
    receiver = network.command(target, python(RECEIVER))
    with subprocess.Popen(receiver, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        sender = network.command(source, python(SENDER, network.address(target), size))
        sent = subprocess.run(sender, check=True, capture_output=True, text=True)
        return float(sent.stdout)


def least_seconds(size: int, rate: int) -> float:
    """A token bucket lets at most burst + rate * t through until t; headers come on top."""
    burst = max(MIN_BURST, rate // 8 // 500)
    return (size - burst) * 8 / rate


def left_behind(prefix: str) -> list[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if line.startswith(prefix)]


@contextlib.contextmanager
def holder() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process that has made a network, and that network's prefix."""
    with subprocess.Popen(python(HOLDER), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.terminate()


@pytest.mark.parametrize(
    ("text", "rate"),
    [("1gbit", 10**9), ("200mbit", 2 * 10**8), ("2.5Gbit", 25 * 10**8), (" 64kbit ", 64_000)],
)
def test_parse_rate_reads_kilo_mega_and_giga(text: str, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "1", "1gb", "-1gbit", "0gbit", "1 gbit/s", "nangbit"])
def test_parse_rate_names_the_value_and_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="200mbit") as raised:
        parse_rate(text)
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize("text", ["1gbit", "200mbit", "2.5gbit", "64kbit"])
def test_format_rate_says_the_parsed_rate(text: str) -> None:
    assert parse_rate(format_rate(parse_rate(text)).replace(" ", "").removesuffix("/s")) == (
        parse_rate(text)
    )


def test_parse_counters_finds_the_card_by_its_whole_name() -> None:
    text = (
        "Inter-|   Receive   |  Transmit\n"
        " face |bytes packets errs drop fifo frame compressed multicast|bytes packets ...\n"
        "   e01: 9 9 9 9 9 9 9 9 9 9\n"
        "    e0: 11 2 0 0 0 0 0 0 333 4 0 0 0 0 0 0\n"
    )
    assert parse_counters(text, "e0") == Counters(bytes_out=333, bytes_in=11)
    with pytest.raises(NetworkError, match="e2"):
        parse_counters(text, "e2")
    assert Counters(5, 7) - Counters(2, 3) == Counters(3, 4)


@pytest.mark.parametrize("hosts", [0, -1, 255])
def test_network_rejects_a_number_of_hosts_it_has_no_addresses_for(hosts: int) -> None:
    with pytest.raises(ValueError, match=str(hosts)):
        ShapedNetwork(hosts=hosts, rate_bits_per_second=RATE)


def test_network_rejects_a_rate_of_nothing() -> None:
    with pytest.raises(ValueError, match="rate_bits_per_second is 0"):
        ShapedNetwork(hosts=2, rate_bits_per_second=0)


@needs_namespaces
def test_transfer_takes_at_least_as_long_as_the_rate_allows() -> None:
    size = 4 * MEGABYTE
    with ShapedNetwork(hosts=2, rate_bits_per_second=RATE) as network:
        before = network.counters(0), network.counters(1)
        assert seconds_to_send(network, 0, 1, size) >= least_seconds(size, RATE)
        sent, received = network.counters(0) - before[0], network.counters(1) - before[1]
    assert sent.bytes_out >= size
    assert received.bytes_in >= size
    assert received.bytes_out < size


@needs_namespaces
@pytest.mark.parametrize("slow_host", [0, 1])
def test_set_rate_limits_sending_and_receiving(slow_host: int) -> None:
    slow = parse_rate("40mbit")
    with ShapedNetwork(hosts=2, rate_bits_per_second=RATE) as network:
        network.set_rate(slow_host, slow)
        assert seconds_to_send(network, 0, 1, MEGABYTE) >= least_seconds(MEGABYTE, slow)


@needs_namespaces
def test_two_networks_exist_at_once_and_do_not_meet() -> None:
    with (
        ShapedNetwork(hosts=1, rate_bits_per_second=RATE) as one,
        ShapedNetwork(hosts=2, rate_bits_per_second=RATE) as other,
    ):
        assert one.prefix != other.prefix
        assert one.address(0) == other.address(0)
        # Host 1 exists in the other network only.
        unreachable = python(SENDER, other.address(1), 1)
        tried = subprocess.run(one.command(0, unreachable), check=False, capture_output=True)
        assert tried.returncode != 0


@needs_namespaces
def test_nothing_is_left_after_use_or_an_exception() -> None:
    with ShapedNetwork(hosts=2, rate_bits_per_second=RATE) as network:
        assert len(left_behind(network.prefix)) == 3
        shell = ["sh", "-c", "echo there; exec sleep 1000000"]
        stray = subprocess.Popen(network.command(0, shell), stdout=subprocess.PIPE)
        assert stray.stdout is not None
        assert stray.stdout.readline() == b"there\n"
    assert left_behind(network.prefix) == []
    assert stray.wait() == -signal.SIGTERM
    with pytest.raises(KeyError), ShapedNetwork(2, RATE) as network:
        raise KeyError
    assert left_behind(network.prefix) == []


@needs_namespaces
def test_nothing_is_left_when_making_it_fails_halfway() -> None:
    network = ShapedNetwork(hosts=2, rate_bits_per_second=RATE)
    taken = network.namespace(1)
    subprocess.run(["ip", "netns", "add", taken], check=True)
    with pytest.raises(NetworkError, match=taken), network:
        pass
    assert left_behind(network.prefix) == []


@needs_namespaces
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_after_a_signal(number: signal.Signals) -> None:
    with holder() as (process, prefix):
        assert len(left_behind(prefix)) == 3
        process.send_signal(number)
        assert process.wait() != 0
        assert left_behind(prefix) == []


@needs_namespaces
def test_sigterm_handler_is_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with ShapedNetwork(hosts=1, rate_bits_per_second=RATE):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


@needs_namespaces
def test_run_ranks_gives_each_host_its_rank(tmp_path: Path) -> None:
    names = "RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT GLOO_SOCKET_IFNAME EXTRA"
    code = (
        "import os, sys\n"
        "with open(sys.argv[1] + os.environ['RANK'], 'w') as file:\n"
        "    print(*(os.environ[name] for name in sys.argv[2:]), file=file)"
    )
    with ShapedNetwork(hosts=3, rate_bits_per_second=RATE) as network:
        argv = python(code, f"{tmp_path}/", *names.split())
        assert run_ranks(network, argv, environment={"EXTRA": "more"}) == [0, 0, 0]
    for rank in range(3):
        seen = (tmp_path / str(rank)).read_text()
        assert seen == f"{rank} 0 3 192.0.2.1 29500 e0 more\n"


@needs_namespaces
def test_run_ranks_can_start_several_on_a_host(tmp_path: Path) -> None:
    names = "RANK LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE WORLD_SIZE"
    code = (
        "import os, sys\n"
        "with open(sys.argv[1] + os.environ['RANK'], 'w') as file:\n"
        "    print(*(os.environ[name] for name in sys.argv[2:]), file=file)"
    )
    with ShapedNetwork(hosts=2, rate_bits_per_second=RATE) as network:
        argv = python(code, f"{tmp_path}/", *names.split())
        assert run_ranks(network, argv, ranks_per_host=2) == [0, 0, 0, 0]
    seen = [(tmp_path / str(rank)).read_text() for rank in range(4)]
    assert seen == ["0 0 2 0 2 4\n", "1 1 2 0 2 4\n", "2 0 2 1 2 4\n", "3 1 2 1 2 4\n"]


@needs_namespaces
def test_run_ranks_forwards_rank_0_alone(capfd: pytest.CaptureFixture[str]) -> None:
    with ShapedNetwork(hosts=2, rate_bits_per_second=RATE) as network:
        run_ranks(network, python("import os; print('this is', os.environ['RANK'])"))
    assert capfd.readouterr().out == "this is 0\n"


@needs_namespaces
def test_run_ranks_ends_everybody_when_one_fails(capfd: pytest.CaptureFixture[str]) -> None:
    code = (
        "import os, time\n"
        "if os.environ['RANK'] == '1': raise SystemExit('out of luck')\n"
        "time.sleep(1e6)"
    )
    with ShapedNetwork(hosts=3, rate_bits_per_second=RATE) as network:
        assert run_ranks(network, python(code)) == [-signal.SIGTERM, 1, -signal.SIGTERM]
    said = capfd.readouterr().err
    assert "rank 1 failed with exit code 1" in said
    assert "out of luck" in said


@needs_namespaces
def test_own_counters_are_those_of_the_host_the_process_runs_on(tmp_path: Path) -> None:
    code = "import sys, zensync._network as n; open(sys.argv[1], 'w').write(repr(n.own_counters()))"
    with ShapedNetwork(hosts=1, rate_bits_per_second=RATE) as network:
        assert run_ranks(network, python(code, tmp_path / "seen")) == [0]
        seen = (tmp_path / "seen").read_text()
        assert seen.startswith("Counters(bytes_out=")
    with pytest.raises(NetworkError, match="no network interface 'nowhere'"):
        own_counters("nowhere")
