"""How long do samplers wait for new weights, or for a new adapter, by files in a directory?

    python -m benchmarks.speed.weight_transfer
    python -m benchmarks.speed.weight_transfer --dtype bfloat16 --samplers 1 2 4 8 --output many.json

Each sampler is slimrl's server in a process of its own on the same machine, and idle. The time begins with weights in
the trainer's memory, and ends when all samplers have their version. Files are written once, and read and copied by all.
An adapter of rank 16 goes alone, and is merged into the weights by all.
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import common_arguments, machine_facts, markdown_table, write_result
from slimrl.config.model import LoraConfig, ModelConfig
from slimrl.models.load import Policy, load_policy, save_weights
from slimrl.models.lora import adapter_tensors, base_fingerprint
from slimrl_cluster.inference.remote_client import RemoteClient
from slimrl_cluster.inference.server_link import SamplerAddress

PORT, CONTEXT_LEN, START_S = 8393, 256, 120.0
RANK = 16
WAYS = "files", "adapter"


def main() -> None:
    parser = common_arguments(__doc__ or "", "weight_transfer.json", repetitions=5)
    parser.add_argument("--samplers", type=int, nargs="+", default=[1], help="how many there are")
    arguments = parser.parse_args()
    facts, content = machine_facts(), {}
    for dtype in arguments.dtype:
        config = ModelConfig(name=arguments.model, device="cpu", dtype=dtype, num_threads=arguments.threads)
        policy = load_policy(config)
        adapted = load_policy(config.model_copy(update={"lora": LoraConfig(rank=RANK)}))
        for num in arguments.samplers:
            with ExitStack() as held:
                directory = Path(held.enter_context(tempfile.TemporaryDirectory()))
                clients = [held.enter_context(sampler(arguments.model, dtype, PORT + place)) for place in range(num)]
                name = dtype if arguments.samplers == [1] else f"{dtype}, {num} samplers"
                content[name] = measure(policy, adapted, clients, directory, arguments.repetitions)
    rows = [
        [name, f"{of['megabytes']:.0f}", *(f"{of[way]['median_s']:.2f}" for way in WAYS)]
        for name, of in content.items()
    ]
    print(f"\n{markdown_table(('weights', 'MB', *(f'{way}, s' for way in WAYS)), rows)}")
    write_result(arguments.output, facts, {"summary": content}, {})


@contextmanager
def sampler(model: str, dtype: str, port: int) -> Iterator[RemoteClient]:
    """A client of a server that runs in a process of its own."""
    command = [sys.executable, "-m", "slimrl", "inference", "--model.name", model, "--model.dtype", dtype]
    command += ["--model.device", "cpu", "--port", str(port), "--context_len", str(CONTEXT_LEN), "--max_slots", "4"]
    process = subprocess.Popen([*command, "--model.num_threads", "1"], stdout=subprocess.DEVNULL)
    client = RemoteClient(SamplerAddress(f"http://127.0.0.1:{port}", timeout_s=START_S), frozenset(), CONTEXT_LEN)
    try:
        client.wait(client.check())  # when it is ready
        yield client
    finally:
        client.close()
        process.terminate()
        process.wait()


def measure(
    policy: Policy, adapted: Policy, clients: Sequence[RemoteClient], directory: Path, repetitions: int
) -> dict[str, Any]:
    """The times of all ways: of the adapter first, as whole weights replace those that it is merged into."""
    tensors = {name: parameter.detach() for name, parameter in policy.module.named_parameters()}
    versions = iter(range(1, 10**6))
    times: dict[str, list[float]] = {way: [] for way in WAYS}

    base, pairs = base_fingerprint(adapted.module), adapter_tensors(adapted.module)

    def by_files(policy: Policy, base: str = "") -> None:
        version = next(versions)
        save_weights(policy, directory / f"{version}", base=base)
        with ThreadPoolExecutor(len(clients)) as pool:
            give = directory / f"{version}", version
            list(pool.map(lambda client: client.wait(client.give_weights(*give)), clients))
        shutil.rmtree(directory / f"{version}")

    def seconds(way: Callable[[], None]) -> float:
        began = time.perf_counter()
        way()
        return time.perf_counter() - began

    for _ in range(repetitions):
        times["adapter"].append(seconds(lambda: by_files(adapted, base)))
    for _ in range(repetitions):
        times["files"].append(seconds(lambda: by_files(policy)))
    return {
        "megabytes": sum(tensor.nbytes for tensor in tensors.values()) / 1e6,
        "adapter_megabytes": sum(tensor.nbytes for tensor in pairs.values()) / 1e6,
        **{
            name: {"median_s": round(statistics.median(all_s), 3), "all_s": [round(one, 3) for one in all_s]}
            for name, all_s in times.items()
        },
    }


if __name__ == "__main__":
    main()
