"""What does isolation cost? One execution of `print(1)`, warm, one after the other, and 500 at once.

`uv run python -m benchmarks.speed.sandbox`: the local sandbox in this process, its server on the loopback interface,
and for comparison a bare `python -c`, which isolates nothing and begins anew each time. `--container
http://127.0.0.1:8080` adds a server that runs already, such as one in a container; SANDBOX_TOKEN is its token.

An execution's time is that on the caller's clock: everything is in it, the start of its process and the server's and
the client's own work too. `--pause-ms` is a pause between two executions, as of a policy that thinks between programs.
"""

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import RESULTS, machine_facts, markdown_table, write_result
from slimrl.errors import UserError
from slimrl_sandbox.base import Sandbox
from slimrl_sandbox.client import HttpSandbox
from slimrl_sandbox.local import BubblewrapSandbox

CODE, SAID = "print(1)", "1\n"
WARM = 10
Run = Callable[[], Awaitable[str]]


async def time_executions(run: Run, num: int, pause_s: float) -> dict[str, float]:
    """Milliseconds of `num` executions, one after the other."""
    seconds = []
    for number in range(WARM + num):
        await asyncio.sleep(pause_s)
        began = time.perf_counter()
        said = await run()
        if number >= WARM:
            seconds.append(time.perf_counter() - began)
        assert said == SAID, said
    cuts = statistics.quantiles(seconds, n=20)
    return {"median_ms": 1e3 * statistics.median(seconds), "p5_ms": 1e3 * cuts[0], "p95_ms": 1e3 * cuts[-1]}


async def at_once(sandbox: Sandbox, num: int) -> dict[str, float]:
    """`num` executions sent at once, each with an answer of its own."""
    began = time.perf_counter()
    found = await asyncio.gather(*(sandbox.run(f"print({number})") for number in range(num)))
    seconds = time.perf_counter() - began
    return {"num": num, "right": sum(e.stdout == f"{n}\n" for n, e in enumerate(found)), "seconds": seconds}


async def of_sandbox(sandbox: Sandbox, arguments: argparse.Namespace) -> dict[str, Any]:
    async def run() -> str:
        return (await sandbox.run(CODE)).stdout

    return {
        "paused": await time_executions(run, arguments.num, arguments.pause_ms / 1e3),
        "unpaused": await time_executions(run, arguments.num, 0.0),
        "at_once": await at_once(sandbox, arguments.num_at_once),
    }


async def of_python(arguments: argparse.Namespace) -> dict[str, Any]:
    async def run() -> str:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", CODE, stdout=subprocess.PIPE)
        return (await process.communicate())[0].decode()

    return {"paused": await time_executions(run, arguments.num, arguments.pause_ms / 1e3)} | {
        "unpaused": await time_executions(run, arguments.num, 0.0)
    }


async def of_server(arguments: argparse.Namespace) -> dict[str, Any]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "SANDBOX_TOKEN": "benchmark"}
    command = [sys.executable, "-m", "slimrl_sandbox", "--port", str(port)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        async with HttpSandbox(f"http://127.0.0.1:{port}", "benchmark") as sandbox:
            await until_it_answers(sandbox)
            return await of_sandbox(sandbox, arguments)
    finally:
        process.terminate()
        process.wait()


async def until_it_answers(sandbox: HttpSandbox) -> None:
    for _ in range(100):
        try:
            await sandbox.run("")
        except UserError:  # not there yet
            await asyncio.sleep(0.1)
        else:
            return
    sys.exit("the sandbox's server did not start within ten seconds")


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    found = {"python -c, not isolated": await of_python(arguments)}
    async with BubblewrapSandbox({}) as sandbox:
        found["in this process"] = await of_sandbox(sandbox, arguments)
    found["its server"] = await of_server(arguments)
    if arguments.container:
        async with HttpSandbox(arguments.container, os.environ.get("SANDBOX_TOKEN", "")) as sandbox:
            found["its server in a container"] = await of_sandbox(sandbox, arguments)
    return {"pause_ms": arguments.pause_ms, "executions": arguments.num, "sides": found}


def table(content: dict[str, Any]) -> str:
    rows = []
    for name, side in content["sides"].items():
        times = [_time(side[kind]) for kind in ("paused", "unpaused")]
        burst = side.get("at_once")
        rows.append([name, *times, f"{burst['right']} of {burst['num']} in {burst['seconds']:.1f} s" if burst else ""])
    head = ["an execution", f"{content['pause_ms']:g} ms between two", "no pause", "sent at once: right"]
    return markdown_table(head, rows)


def _time(row: dict[str, float]) -> str:
    return f"{row['median_ms']:.1f} ms ({row['p5_ms']:.1f} to {row['p95_ms']:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=150, help="executions of each kind")
    parser.add_argument("--num-at-once", type=int, default=500)
    parser.add_argument("--pause-ms", type=float, default=100.0)
    parser.add_argument("--container", default="", help="address of a server that runs already")
    parser.add_argument("--output", type=Path, default=RESULTS / "sandbox.json")
    arguments = parser.parse_args()
    facts = machine_facts()
    content = asyncio.run(measure(arguments))
    print(table(content))
    write_result(arguments.output, facts, content, {})


if __name__ == "__main__":
    main()
