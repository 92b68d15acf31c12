"""The interpreter ends cleanly, whatever dies first."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

PROLOGUE = """
    import sys
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    import zensync

    rank, port = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
    )
    state = zensync.State()
    model = DistributedDataParallel(torch.nn.Linear(100, 100), bucket_cap_mb=0.01)
    model.register_comm_hook(state, zensync.hook)
    for _ in range(3):
        model(torch.ones(1, 100)).sum().backward()
    reduced = torch.ones(10)
    zensync.all_reduce(reduced)

    def hook_with_callback(state, bucket, callback):
        # Of rank 0, whose callback is in place before the work can be done: so it runs on the
        # engine's thread.
        if rank == 1:
            dist.barrier()
            return zensync.hook(state, bucket)
        future = zensync.hook(state, bucket).then(callback)
        dist.barrier()
        return future
"""

ENDINGS = {
    "nothing dropped": "",
    "state dropped first": """
        del state, model
        dist.destroy_process_group()
    """,
    "group destroyed first": """
        dist.destroy_process_group()
        del state, model
    """,
    "group destroyed, state kept": "dist.destroy_process_group()",
    "state in a cycle": """
        model.myself = [model]
        dist.destroy_process_group()
    """,
    "closed": """
        state.close()
        dist.destroy_process_group()
    """,
    "work in flight": "future = zensync.all_reduce(reduced, async_op=True)",
    "state dropped by its own callback": """
        import threading
        seen = threading.Event()
        holder = [zensync.State()]
        other = DistributedDataParallel(torch.nn.Linear(10, 10))
        def hook(_, bucket):
            def callback(future):
                holder.clear()
                seen.set()
                return future.value()
            return hook_with_callback(holder[0], bucket, callback)
        other.register_comm_hook(None, hook)
        other(torch.ones(1, 10)).sum().backward()
        assert rank == 1 or (seen.is_set() and not holder)
        dist.destroy_process_group()
    """,
    "closed by its own callback": """
        def hook(_, bucket):
            def callback(future):
                try:
                    state.close()
                except ValueError as error:
                    caught.append(str(error))
                return future.value()
            return hook_with_callback(state, bucket, callback)
        caught = []
        other = DistributedDataParallel(torch.nn.Linear(10, 10))
        other.register_comm_hook(None, hook)
        other(torch.ones(1, 10)).sum().backward()
        assert rank == 1 or (len(caught) == 1 and "call it outside" in caught[0]), caught
        dist.destroy_process_group()
    """,
    "forked child": """
        import os
        child = os.fork()
        if child == 0:
            for use in (lambda: model(torch.ones(1, 100)).sum().backward(),
                        lambda: zensync.all_reduce(reduced)):
                try:
                    use()  # would wait for ever: the engine's thread is not there
                    os._exit(1)
                except ValueError as error:
                    assert "this process was forked" in str(error), error
            state.close()
            del state, model
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        dist.destroy_process_group()
    """,
    "many engines": """
        import os
        def held():
            return [len(os.listdir(f"/proc/self/{what}")) for what in ("task", "fd")]
        before = held()
        for number in range(20):
            again = zensync.State()
            other = DistributedDataParallel(torch.nn.Linear(10, 10))
            other.register_comm_hook(again, zensync.hook)
            other(torch.ones(1, 10)).sum().backward()
            if number % 2:
                again.close()
            del again, other
        assert held() == before, f"threads and files: {before} before, now {held()}"
        dist.destroy_process_group()
    """,
}


# Runs scripts in forks of an interpreter that has imported everything, which takes seconds. A fork
# leaves the loop and then runs and ends as any interpreter does.
LAUNCHER = """
import json
import os
import signal
import sys

import torch._dynamo
import zensync

print("ready", flush=True)
for line in sys.stdin:
    script, outputs, port = json.loads(line)
    children = []
    for rank, output in enumerate(outputs):
        child = os.fork()
        if child == 0:
            break
        children.append(child)
    else:
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(json.dumps(codes), flush=True)
        continue
    signal.alarm(300)  # a hang is a failure
    file = os.open(output, os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = [script, str(rank), str(port)]
    break
else:
    sys.exit()
exec(compile(open(script).read(), script, "exec"))
"""


@pytest.fixture(scope="module")
def launcher() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER],
        env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.parametrize("ending", ENDINGS)
def test_exit(ending: str, launcher: subprocess.Popen[str], free_port: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(PROLOGUE) + textwrap.dedent(ENDINGS[ending]))
    outputs = [tmp_path / f"output{rank}" for rank in range(2)]
    assert launcher.stdin is not None
    assert launcher.stdout is not None
    print(
        json.dumps([str(script), [str(output) for output in outputs], free_port]),
        file=launcher.stdin,
        flush=True,
    )
    for code, file in zip(json.loads(launcher.stdout.readline()), outputs, strict=True):
        output = file.read_text()
        assert code == 0, output
        assert "terminate called" not in output, output
        assert "Traceback" not in output, output
