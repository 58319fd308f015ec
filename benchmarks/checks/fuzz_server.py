"""Sends random and damaged requests to a server for a while, and looks for anything but an answer below 500.

    python -m benchmarks.checks.fuzz_server --minutes 10                       # `slimrl inference`, a tiny model
    python -m benchmarks.checks.fuzz_server --minutes 10 --server sandbox      # `python -m slimrl_sandbox`

A finding is an answer of 500 or above (but 503 with `Retry-After`), no answer in time to a whole request or to
`/health`, a traceback or much else on stderr, the end of the process, or memory that grows. Each is written to
`--findings` with the input, and the exit status is 1. Writes `benchmarks/results/fuzz_SERVER.json`.
"""

import argparse
import asyncio
import collections
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from benchmarks.harness.hostile_requests import Gun, Shot, inference_bodies, sandbox_bodies
from benchmarks.harness.measure import RESULTS, machine_facts, write_result
from slimrl.models.names import PACKAGED
from slimrl.models.resolve import resolve

NUM_CLIENTS = 12
ANSWER_S = 60.0  # for a whole request: others compute at the same time
HEALTH_S = 10.0
IMPATIENT_S = 0.05
KEPT_BYTES = 20_000  # of a reply
DAMAGED_S = 1.0  # how long most clients wait for an answer to what may be no request
GROWTH_MB = 300
MAX_LOG_CHARACTERS = 10_000
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


@dataclass
class Tally:
    """What has happened so far."""

    findings_dir: Path
    statuses: collections.Counter[str] = field(default_factory=collections.Counter)
    findings: list[str] = field(default_factory=list)
    recent: collections.deque[bytes] = field(default_factory=lambda: collections.deque(maxlen=60))
    slowest_health_s: float = 0.0
    memory_mb: list[int] = field(default_factory=list)

    def report(self, what: str, inputs: Sequence[bytes]) -> None:
        """Write a finding down with its inputs; of each kind the first ten."""
        self.findings.append(what)
        print(f"finding: {what}", flush=True)
        if len(self.findings) <= 50:
            self.findings_dir.mkdir(parents=True, exist_ok=True)
            path = self.findings_dir / f"{len(self.findings):03}.txt"
            path.write_bytes(what.encode() + b"\n" + b"\n----\n".join(inputs))


async def fire(address: str, shot: Shot, tally: Tally) -> None:
    """Send a shot as its client would, and look at the answer."""
    host, port = address.removeprefix("http://").rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    reply = Reply(shot.content.startswith(b"HEAD"))
    try:
        step = max(1, len(shot.content) // shot.num_pieces + 1)
        for start in range(0, len(shot.content), step):
            writer.write(shot.content[start : start + step])
            await writer.drain()
            await asyncio.sleep(0)
        limit = (ANSWER_S if shot.is_whole else DAMAGED_S) if shot.patient else IMPATIENT_S
        async with asyncio.timeout(limit):
            while part := await reader.read(2**16):
                reply.add(part)
                if shot.is_whole and reply.is_complete:
                    break
    except ConnectionError:
        pass
    except TimeoutError:
        if shot.is_whole and shot.patient:
            tally.report(f"no whole answer in {ANSWER_S:.0f} s", [shot.content, reply.start])
    finally:
        writer.transport.abort()
    for status in STATUS.findall(reply.start):
        tally.statuses[status.decode()] += 1
        if int(status) >= 500 and not (status == b"503" and b"retry-after" in reply.start.lower()):
            tally.report(f"status {status.decode()}", [shot.content, reply.start])
    if not reply.start and shot.is_whole and shot.patient:
        tally.statuses["no answer"] += 1


@dataclass
class Reply:
    """What a server has answered: its beginning, its end and its length, since it may be long."""

    has_no_body: bool
    start: bytes = b""
    end: bytes = b""
    length: int = 0

    def add(self, part: bytes) -> None:
        self.start += part[: max(0, KEPT_BYTES - len(self.start))]
        self.end = (self.end + part)[-5:]
        self.length += len(part)

    @property
    def is_complete(self) -> bool:
        """Whether at least one whole response is there, or more than is looked at."""
        head, blank, body = self.start.partition(b"\r\n\r\n")
        if length := re.search(rb"(?i)content-length: (\d+)", head):
            return self.has_no_body or self.length - len(head) - 4 >= int(length[1])
        return bool(blank) and (b"0\r\n\r\n" in body or self.end == b"0\r\n\r\n" or b" 304 " in head)


async def shoot(gun: Gun, address: str, tally: Tally, until: float) -> None:
    while time.monotonic() < until:
        shot = gun.shot()
        tally.recent.append(shot.content[:20_000])
        try:
            await fire(address, shot, tally)
        except OSError:
            await asyncio.sleep(0.2)  # `watch` sees whether the server has ended


async def watch(process: subprocess.Popen[str], address: str, log: Path, tally: Tally, until: float) -> None:
    """Ask for `/health`, and look at the log and the memory, all the time."""
    read = 0
    async with httpx.AsyncClient(base_url=address, timeout=HEALTH_S) as http:
        while time.monotonic() < until and process.poll() is None:
            began = time.monotonic()
            try:
                if (await http.get("/health")).status_code != 200:
                    tally.report("/health is not 200", list(tally.recent))
            except httpx.TimeoutException:
                tally.report(f"/health did not answer in {HEALTH_S:.0f} s", list(tally.recent))
            except httpx.TransportError:
                tally.statuses["health: connection lost"] += 1
            tally.slowest_health_s = max(tally.slowest_health_s, time.monotonic() - began)
            content = log.read_bytes()
            if b"Traceback" in content[read:]:
                tally.report("traceback: " + content[read : read + 3000].decode(errors="replace"), list(tally.recent))
            read = len(content)
            tally.memory_mb.append(memory_mb(process.pid))
            await asyncio.sleep(0.5)
    if process.poll() is not None:
        tally.report(f"the server ended with {process.returncode}", list(tally.recent))


def memory_mb(pid: int) -> int:
    """The resident memory of a process."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmRSS:\s+(\d+)", status)
    return int(found[1]) // 1024 if found else 0


def make_places(directory: Path) -> list[Path]:
    """A tiny model with the packaged model's tokenizer, first, and directories whose weights cannot be used."""
    packaged = resolve(next(iter(PACKAGED)))
    good = directory / "tiny"
    config = AutoConfig.from_pretrained(packaged)
    config.update({"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16})
    config.update({"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 512})
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(good)
    AutoTokenizer.from_pretrained(packaged).save_pretrained(good)
    bad = [directory / name for name in ("pipe", "nan", "cut", "index", "adapter", "deep")]
    for place in bad:
        place.mkdir()
    os.mkfifo(bad[0] / "m.safetensors")
    (bad[0] / "model.safetensors.index.json").write_text('{"weight_map": {"a": "m.safetensors"}}')
    nans = {name: torch.full_like(tensor, torch.nan) for name, tensor in model.named_parameters()}
    save_file(nans, bad[1] / "model.safetensors")
    (bad[2] / "model.safetensors").write_bytes((good / "model.safetensors").read_bytes()[:100_000])
    (bad[3] / "model.safetensors.index.json").write_text('{"weight_map": {"a": 1, "b": "../x"}}')
    (bad[4] / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 2, "lora_alpha": 4}')
    os.mkfifo(bad[4] / "adapter_model.safetensors")
    (bad[5] / "adapter_config.json").write_text("[" * 100_000)
    return [good, *bad, Path("/dev"), Path("/nowhere")]


def start(server: str, places: Sequence[Path], log: Path) -> tuple[subprocess.Popen[str], str]:
    """Start the server; return its process and address."""
    if server == "inference":
        flags = ["--model.name", str(places[0]), "--served_model_name", "tiny", "--context_len", "256"]
        flags += ["--model.dtype", "float32", "--model.num_threads", "1", "--max_slots", "8", "--max_queue", "64"]
        command = [sys.executable, "-m", "slimrl", "inference", "--port", "0", *flags]
    else:
        command = [sys.executable, "-m", "slimrl_sandbox", "--port", "0", "--wall-s", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log.open("wb"), text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://[\d.]+:\d+", line)
    if not found:
        raise SystemExit(f"the server did not start: {line} {log.read_text()}")
    return process, found[0]


async def fuzz(arguments: argparse.Namespace, places: Sequence[Path], log: Path, tally: Tally) -> None:
    process, address = start(arguments.server, places, log)
    try:
        bodies = inference_bodies(places) if arguments.server == "inference" else sandbox_bodies()
        paths = list(httpx.get(f"{address}/openapi.json").json()["paths"])
        gets = [*paths, "/openapi.json", "/nowhere", "/", "//", "/v1/models/../x"]
        until = time.monotonic() + 60 * arguments.minutes
        guns = [Gun(random.Random(f"{arguments.seed} {n}"), address, bodies, gets) for n in range(NUM_CLIENTS)]
        clients = [shoot(gun, address, tally, until) for gun in guns]
        await asyncio.gather(watch(process, address, log, tally, until), *clients)
        settled = tally.memory_mb[len(tally.memory_mb) // 5 :] or [0]
        if settled[-1] - settled[0] > GROWTH_MB:
            tally.report(f"memory grew from {settled[0]} to {settled[-1]} MB", [])
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            tally.report("the server did not end within 30 s of SIGTERM", list(tally.recent))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=["inference", "sandbox"], default="inference")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the clock")
    parser.add_argument("--findings", type=Path, default=Path("outputs/fuzz"), help="directory for inputs that matter")
    arguments = parser.parse_args()
    facts, tally = machine_facts(), Tally(arguments.findings)
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "stderr"
        places = make_places(Path(directory)) if arguments.server == "inference" else []
        asyncio.run(fuzz(arguments, places, log, tally))
        stderr = log.read_text(encoding="utf-8", errors="replace")
        if len(stderr) > MAX_LOG_CHARACTERS:
            tally.report(f"{len(stderr)} characters on stderr", [])
    content: dict[str, Any] = {
        "minutes": arguments.minutes,
        "seed": arguments.seed,
        "responses": dict(sorted(tally.statuses.items())),
        "slowest_health_s": round(tally.slowest_health_s, 3),
        "memory_mb": tally.memory_mb[:: max(1, len(tally.memory_mb) // 20)],
        "stderr": stderr[:2000],
        "findings": tally.findings,
    }
    private = {str(arguments.findings): "outputs/fuzz"}
    write_result(RESULTS / f"fuzz_{arguments.server}.json", facts, content, private)
    print(content)
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
