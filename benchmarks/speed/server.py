"""The inference server under load: many clients at once, of which some walk away, while its weights change.

Starts `slimrl inference` on this machine, asks for the answers to a set of greedy requests while it is idle, then lets
the clients loose: chat, completions, streams, tools, long prompts. Every request has a deadline; every greedy answer is
compared, every token's weight version checked; the server's memory is sampled all the time.

    python -m benchmarks.speed.server

The clients share the machine's cores with the server, so its throughput here is a lower bound. benchmarks/README.md
says how to read the table.
"""

import argparse
import asyncio
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import torch
from safetensors.torch import load_file, save_file

from benchmarks.harness.measure import RESULTS, machine_facts, markdown_table, write_result
from benchmarks.harness.server_load import DISCONNECTS, Load, Tally, Weights, client
from benchmarks.harness.server_requests import CLEAR_LEAD, Query, answer_all, candidates_to_check, with_answers
from slimrl.models.device import choose_device, choose_dtype, dtype_name
from slimrl.models.load import DTYPES
from slimrl.models.resolve import resolve

START_S = 180.0  # for the server to load the model
DRAIN_S = 30.0  # for slots to become free behind the last request
UPDATES_AT = (0.3, 0.5, 0.7)  # of the time under load
FLAT_SHARE, FLAT_MB = 0.02, 32.0  # memory is flat if it grows by less than the larger of these
SAMPLE_S = 1.0
NOISE = 0.02  # relative change that makes the other set of weights


def main() -> None:
    arguments = parse_arguments()
    if arguments.dtype == "auto":
        choice = choose_dtype(choose_device("auto"))
        arguments.dtype = dtype_name(choice.dtype)
    facts = machine_facts()
    with tempfile.TemporaryDirectory() as directory:
        weights = two_sets_of_weights(resolve(arguments.model), arguments.dtype, Path(directory))
        log = Path(directory) / "server.log"
        with run_server(arguments, log) as (url, pid):
            try:
                content = asyncio.run(measure(arguments, url, pid, weights))
            except (httpx.HTTPError, TimeoutError) as error:
                sys.exit(f"{log.read_text(encoding='utf-8')[-4000:]}\nthe server failed: {error!r}")
    print(f"\n{table(content)}")
    write_result(arguments.output, facts, content, {})
    if not content["verdict"]["passed"]:
        sys.exit(f"not passed: {content['verdict']}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="model, as slimrl's model.name")
    parser.add_argument("--dtype", choices=["auto", "bfloat16", "float32"], default="auto")
    parser.add_argument("--clients", type=int, default=200, help="clients at once, one request each")
    parser.add_argument("--seconds", type=float, default=300.0, help="time under load")
    parser.add_argument("--deadline", type=float, default=120.0, help="seconds after which a request counts as hung")
    parser.add_argument("--slots", type=int, default=64, help="sequences that the server decodes at once")
    parser.add_argument("--context", type=int, default=2048, help="tokens of a slot")
    parser.add_argument("--requests", type=int, default=96, help="greedy requests to find checkable answers among")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS / "server.json")
    return parser.parse_args()


def two_sets_of_weights(model: Path, dtype: str, parent: Path) -> tuple[Path, Path]:
    """Directories for `/update_weights`: the model's own weights in the dtype that is served, and the same with a
    little noise, close, but with other answers."""
    generator = torch.Generator().manual_seed(0)
    directories = (parent / "own", parent / "other")
    for directory in directories:
        directory.mkdir()
    for path in sorted(model.glob("*.safetensors")):
        own = {name: tensor.to(DTYPES[dtype]) for name, tensor in load_file(path).items()}
        other = {name: noisy(tensor, generator) if tensor.dim() == 2 else tensor for name, tensor in own.items()}
        for directory, tensors in zip(directories, (own, other), strict=True):
            save_file(tensors, directory / path.name, metadata={"format": "pt"})
    return directories


def noisy(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    wide = tensor.float()
    return (wide + torch.randn(wide.shape, generator=generator) * wide.std() * NOISE).to(tensor.dtype)


@contextmanager
def run_server(arguments: argparse.Namespace, log: Path) -> Iterator[tuple[str, int]]:
    """The server in a process of its own; its address and process id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = {
        "--model.name": arguments.model,
        "--model.dtype": arguments.dtype,
        "--port": port,
        "--max_slots": arguments.slots,
        "--context_len": arguments.context,
        "--max_queue": 2 * arguments.clients,
    }
    command = [sys.executable, "-m", "slimrl", "inference", *(str(word) for pair in options.items() for word in pair)]
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, "HF_HUB_OFFLINE": "1"}
        )
        try:
            wait_until_ready(f"http://127.0.0.1:{port}", process, log)
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            process.terminate()
            try:
                process.wait(timeout=DRAIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + START_S
    while time.monotonic() < give_up:
        if process.poll() is not None:
            sys.exit(f"{log.read_text(encoding='utf-8')}\nthe server ended with status {process.returncode}")
        try:
            if httpx.get(f"{url}/health", timeout=5.0).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    sys.exit(f"{log.read_text(encoding='utf-8')}\nthe server was not ready after {START_S:.0f} s")


async def measure(arguments: argparse.Namespace, url: str, pid: int, weights: Sequence[Path]) -> dict[str, Any]:
    """Prepare the answers, run the clients, see that the server is idle behind them."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=arguments.clients)
    async with httpx.AsyncClient(base_url=url, timeout=httpx.Timeout(arguments.deadline), limits=limits) as http:
        model = (await http.get("/v1/models")).json()["data"][0]["id"]
        checked = await queries_to_check(http, model, weights, arguments)
        print(f"{len(checked)} of {arguments.requests} greedy requests have answers that rounding cannot change")
        load = Load(http, model, checked, Weights(2, 2), Tally(), arguments.deadline)
        memory_mb: list[float] = []
        sampler = asyncio.create_task(sample_memory(pid, memory_mb))
        began = time.monotonic()
        until = began + arguments.seconds
        updater = asyncio.create_task(update_weights(load, weights, began, arguments.seconds))
        rngs = [random.Random(f"{arguments.seed}/{index}") for index in range(arguments.clients)]
        await asyncio.gather(*(client(load, until, rng) for rng in rngs))
        elapsed_s = time.monotonic() - began
        await updater
        idle = await is_idle(http, arguments.slots + 2 * arguments.clients)
        sampler.cancel()
    return report(load, elapsed_s, memory_mb, idle)


async def queries_to_check(
    http: httpx.AsyncClient, model: str, weights: Sequence[Path], arguments: argparse.Namespace
) -> list[Query]:
    """Greedy requests with their answers under both sets of weights; the server ends up with version 2, the first."""
    candidates = candidates_to_check(model, arguments.requests, random.Random(arguments.seed))
    even = await answer_all(http, candidates)
    await post_update(http, weights[1], 1)
    odd = await answer_all(http, candidates)
    await post_update(http, weights[0], 2)
    if checked := with_answers(candidates, even, odd):
        return checked
    sys.exit("no greedy request has a clear answer under both sets of weights; ask for more with --requests")


async def update_weights(load: Load, weights: Sequence[Path], began: float, seconds: float) -> None:
    """Change the weights at set moments under load; even versions are the model's own."""
    for share in UPDATES_AT:
        await asyncio.sleep(max(0.0, began + share * seconds - time.monotonic()))
        version = load.weights.done + 1
        load.weights.started = version
        await post_update(load.http, weights[version % 2], version)
        load.weights.done = version
        load.weights.num_updates += 1


async def post_update(http: httpx.AsyncClient, directory: Path, version: int) -> None:
    response = await http.post("/update_weights", json={"weight_dir": str(directory), "version": version})
    response.raise_for_status()


async def sample_memory(pid: int, memory_mb: list[float]) -> None:
    """The resident memory of the server, every second."""
    while True:
        process = await asyncio.create_subprocess_exec("ps", "-o", "rss=", "-p", str(pid), stdout=subprocess.PIPE)
        output, _ = await process.communicate()
        memory_mb.append(int(output) / 1024)
        await asyncio.sleep(SAMPLE_S)


async def is_idle(http: httpx.AsyncClient, most: int) -> bool:
    """Whether all slots and the queue are empty soon after the last client has gone: the server no longer refuses a
    request for the `most` completions that it can hold."""
    give_up = time.monotonic() + DRAIN_S
    while time.monotonic() < give_up:
        reply = await http.post("/v1/completions", json={"prompt": [[5]] * most, "max_tokens": 1})
        if reply.status_code == 200:
            return True
        await asyncio.sleep(0.2)
    return False


def report(load: Load, elapsed_s: float, memory_mb: Sequence[float], idle: bool) -> dict[str, Any]:
    tally = load.tally
    counts = dict(sorted(tally.counts.items()))
    wrongs = {kind: tally.counts[kind] for kind in ("hung", "failed", "wrong", "bad version")}
    memory = memory_facts(memory_mb)
    enough = tally.counts["compared"] > 0 and load.weights.num_updates == len(UPDATES_AT)
    return {
        "verdict": {
            **wrongs,
            "memory_flat": memory["flat"],
            "idle_afterwards": idle,
            "passed": enough and idle and memory["flat"] and not any(wrongs.values()),
        },
        "rules": {
            "checked": f"greedy tokens up to the first whose lead is below {CLEAR_LEAD} nats",
            "disconnects": f"{DISCONNECTS:.0%} of the requests are given up at a random moment",
            "memory": memory.pop("rule"),
        },
        "counts": counts,
        "weight_updates": load.weights.num_updates,
        "seconds": round(elapsed_s, 1),
        "throughput": {
            "answered_requests_per_s": round(tally.counts["answered"] / elapsed_s, 2),
            "generated_tokens_per_s": round(tally.generated / elapsed_s, 1),
            "prompt_tokens_per_s": round(tally.prompt / elapsed_s, 1),
        },
        "first_token_s": percentiles(tally.first_token_s),
        "latency_s": {kind: percentiles(values) for kind, values in sorted(tally.latency_s.items())},
        "memory": memory,
        "problems": tally.problems,
    }


def memory_facts(memory_mb: Sequence[float]) -> dict[str, Any]:
    """Growth from the second quarter of the time to the last: the first fills caches and the allocator's lists."""
    quarter = max(1, len(memory_mb) // 4)
    early, late = statistics.median(memory_mb[quarter : 2 * quarter + 1]), statistics.median(memory_mb[-quarter:])
    bound = max(FLAT_MB, FLAT_SHARE * early)
    return {
        "second_quarter_mb": round(early, 1),
        "last_quarter_mb": round(late, 1),
        "peak_mb": round(max(memory_mb), 1),
        "flat": late - early < bound,
        "rule": f"flat: the median of the last quarter exceeds that of the second by less than {bound:.0f} MB",
        "samples_mb": [round(value) for value in memory_mb],
    }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Number, median, 90th and 99th percentile, largest."""
    ordered = sorted(values)
    if not ordered:
        return {"num": 0}
    at = {f"p{share}": ordered[min(len(ordered) - 1, share * len(ordered) // 100)] for share in (50, 90, 99)}
    return {"num": len(ordered), **{name: round(value, 3) for name, value in {**at, "max": ordered[-1]}.items()}}


def table(content: dict[str, Any]) -> str:
    """What happened, then how long it took."""
    facts = {**content["counts"], **content["throughput"], **content["verdict"]}
    what = markdown_table(("what", "number"), [(name, str(value)) for name, value in facts.items()])
    times = {"first token": content["first_token_s"], **content["latency_s"]}
    rows = [(name, *(f"{numbers.get(key, 0):g}" for key in ("num", "p50", "p90", "p99", "max")))
            for name, numbers in times.items()]  # fmt: skip
    return f"{what}\n\n{markdown_table(('seconds to', 'number', 'p50', 'p90', 'p99', 'max'), rows)}"


if __name__ == "__main__":
    main()
