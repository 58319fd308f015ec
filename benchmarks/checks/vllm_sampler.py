"""vLLM as the sampler, beside our engine: the same tokens, new weights, a restart, and engines that stop.

    python -m benchmarks.checks.vllm_sampler --vllm ENVIRONMENT/bin/vllm

vLLM is started as a run starts it, and asked by the client of a run. In float32 greedy tokens should be the same; in
bfloat16 two tokens can have equal logits. `scored` compares log-probabilities of tokens that vLLM sampled at
temperature 1 with those that our engine gives the same tokens.
"""

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import httpx
import torch

from benchmarks.harness.measure import common_arguments, machine_facts, write_result
from slimrl.config.model import ModelConfig
from slimrl.config.rollout import InferenceConfig
from slimrl.environments.find import load_taskset
from slimrl.errors import UserError
from slimrl.inference.client import Client, Completion
from slimrl.inference.engine import Engine
from slimrl.inference.local_client import LocalClient
from slimrl.inference.scheduler import RequestOptions
from slimrl.io.process_tree import find_process_tree, start_time
from slimrl.models.load import Policy, load_policy, save_policy
from slimrl.types import SamplingParams
from slimrl_cluster.inference.remote_client import RemoteClient
from slimrl_cluster.inference.replicas import Replicas
from slimrl_cluster.inference.server_link import SamplerAddress
from slimrl_cluster.services.vllm_sampler import vllm_command, vllm_environment

NUM_PROMPTS, MAX_TOKENS, SEQ_LEN, SLOTS, PORT = 50, 32, 512, 16, 8391
START_S, SILENT_S = 600.0, 10.0
NOISE = 0.05  # of a matrix's own spread, added to make other weights
NEVER = lambda sampled: False  # noqa: E731
Prompts = Sequence[list[int]]


@dataclass(slots=True)
class Vllm:
    """A vLLM that runs. `log` has what it says."""

    command: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command, env=os.environ | vllm_environment(), stdout=output, stderr=output, start_new_session=True
            )

    def signal(self, number: signal.Signals, leader: bool = True) -> None:
        """Signal all of its processes, or all but the one that answers HTTP."""
        assert self.process is not None
        own = self.process.pid
        for pid in find_process_tree({own: start_time(own)}):
            if leader or pid != own:
                os.kill(pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()


def main() -> None:
    parser = common_arguments(__doc__ or "", "vllm_sampler.json", repetitions=1)
    parser.add_argument("--vllm", required=True, help="vLLM's program, in its own environment")
    arguments = parser.parse_args()
    facts, content = machine_facts(), {}
    with tempfile.TemporaryDirectory() as directory:
        for dtype in arguments.dtype:
            content[dtype] = check(arguments.vllm, arguments.model, dtype, Path(directory) / dtype)
            print(dtype, content[dtype], flush=True)
    write_result(arguments.output, facts, {"checks": content}, {arguments.vllm: "VLLM_ENVIRONMENT/bin/vllm"})


def check(program: str, model: str, dtype: Literal["bfloat16", "float32"], directory: Path) -> dict[str, Any]:
    """Everything in one dtype, with two starts of vLLM."""
    directory.mkdir()
    policy = load_policy(ModelConfig(name=model, device="cpu", dtype=dtype))
    first, other = directory / "first", directory / "other"
    save_policy(policy, first)
    prompts = task_prompts(policy)
    greedy = [SamplingParams(MAX_TOKENS, 0.0)] * NUM_PROMPTS
    sampled = [SamplingParams(MAX_TOKENS, 1.0, seed=seed) for seed in range(NUM_PROMPTS)]
    config = InferenceConfig(backend="vllm", vllm_program=program, max_slots=SLOTS)
    vllm = Vllm(vllm_command(config, first, SEQ_LEN, ("127.0.0.1", PORT), dtype), directory / "vllm.log")
    found: dict[str, Any] = {}
    began = time.monotonic()
    vllm.start()
    client = client_of(policy, START_S)
    try:
        client.check()
        sums = [checksums()]
        found["start_s"] = round(time.monotonic() - began, 1)
        began = time.monotonic()
        client.update_weights(first, 0)
        found["update_s"] = round(time.monotonic() - began, 2)
        sums.append(checksums())
        found["greedy"] = compare(ours(policy, prompts, greedy), sample_all(client, prompts, greedy))
        drawn = sample_all(client, prompts, sampled)
        found["scored"] = score(policy, prompts, drawn)
        found["same_seeds_again"] = compare(drawn, sample_all(client, prompts, sampled))
        disturb(policy)
        save_policy(policy, other)
        client.update_weights(other, 1)
        sums.append(checksums())
        found["greedy_after_update"] = compare(ours(policy, prompts, greedy), sample_all(client, prompts, greedy))
        found["checksums"] = {
            "tensors": len(sums[0]),
            "of_the_start_and_of_the_same_weights_equal": sums[0] == sums[1],
            "changed_by_other_weights": sum(sums[0][name] != sums[2][name] for name in sums[0]),
        }
        found["restart"] = restart(vllm, client, prompts, greedy)
        found["checksums"]["after_the_restart_equal"] = checksums() == sums[2]
        found["stopped"] = stop(vllm, policy, prompts[0])
    finally:
        client.close()
        vllm.kill()
    return found


def client_of(policy: Policy, timeout_s: float) -> Replicas:
    """A client of the vLLM that runs."""
    address = SamplerAddress(f"http://127.0.0.1:{PORT}", timeout_s=timeout_s, backend="vllm")
    connect = partial(RemoteClient, stop_ids=policy.chat.stop_ids, seq_len=SEQ_LEN)
    return Replicas(lambda: {"vllm": address}, connect, print, START_S)


def checksums() -> dict[str, str]:
    """The digest of each tensor of the vLLM that runs."""
    reply = httpx.post(f"http://127.0.0.1:{PORT}/weight_checker", json={"action": "checksum"}, timeout=START_S)
    sums: dict[str, str] = reply.raise_for_status().json()["checksums"]
    return sums


def task_prompts(policy: Policy) -> Prompts:
    """The opening messages of test tasks of reverse_text, as token ids."""
    taskset = load_taskset("reverse-text", {})

    async def openings() -> Prompts:
        tasks = taskset.tasks("test")[:NUM_PROMPTS]
        return [policy.chat.opening(await taskset.environment(task).start()) for task in tasks]

    return asyncio.run(openings())


def sample_all(client: Client, prompts: Prompts, params: Sequence[SamplingParams]) -> list[Completion]:
    """All completions, asked for at once."""

    async def all_at_once() -> list[Completion]:
        return await asyncio.gather(*map(client.sample, prompts, params))

    return asyncio.run(all_at_once())


def ours(policy: Policy, prompts: Prompts, params: Sequence[SamplingParams]) -> list[Completion]:
    """The completions of our engine, with the policy's present weights."""
    engine = Engine(policy.module, policy.chat.stop_ids, SLOTS, SEQ_LEN)
    return sample_all(LocalClient(engine, policy.chat.text), prompts, params)


def compare(one: Sequence[Completion], other: Sequence[Completion]) -> dict[str, Any]:
    """How many completions are the same, and how far log-probabilities differ up to the first other token."""
    differences = []
    for a, b in zip(one, other, strict=True):
        for token_a, token_b, logprob_a, logprob_b in zip(
            a.token_ids, b.token_ids, a.logprobs, b.logprobs, strict=False
        ):
            if token_a != token_b:
                break
            differences.append(abs(logprob_a - logprob_b))
    return {
        "prompts": len(one),
        "same_tokens": sum(a.token_ids == b.token_ids for a, b in zip(one, other, strict=True)),
        **spread(differences),
    }


def score(policy: Policy, prompts: Prompts, drawn: Sequence[Completion]) -> dict[str, Any]:
    """How far the log-probabilities of sampled tokens are from those that our engine gives the same tokens."""
    engine = Engine(policy.module, policy.chat.stop_ids, SLOTS, SEQ_LEN)
    options = RequestOptions(prompt_logprobs=0)
    requests = [
        engine.submit([*prompt, *one.token_ids], SamplingParams(1), NEVER, options)
        for prompt, one in zip(prompts, drawn, strict=True)
    ]
    while engine.busy:
        engine.step()
    differences, ratios = [], []
    for request, prompt, one in zip(requests, prompts, drawn, strict=True):
        for scored, logprob in zip(request.scored[len(prompt) - 1 :], one.logprobs, strict=True):
            differences.append(abs(scored.logprob - logprob))
            ratios.append(scored.logprob - logprob)
    kl = fmean(torch.tensor(ratios).double().expm1().sub(torch.tensor(ratios).double()).tolist())
    return {**spread(differences), "mismatch_kl": kl}


def spread(differences: Sequence[float]) -> dict[str, Any]:
    return {
        "tokens": len(differences),
        "mean_difference": float(f"{fmean(differences):.3g}"),
        "largest_difference": float(f"{max(differences):.3g}"),
    }


@torch.no_grad()
def disturb(policy: Policy) -> None:
    """Make other weights, every one of them."""
    generator = torch.Generator().manual_seed(0)
    for parameter in policy.module.parameters():
        noise = torch.randn(parameter.shape, generator=generator) * parameter.float().std().clamp_min(1e-3) * NOISE
        parameter.add_(noise.to(parameter.dtype))


def restart(vllm: Vllm, client: Replicas, prompts: Prompts, params: Sequence[SamplingParams]) -> dict[str, Any]:
    """Kill vLLM while it samples, start it again with its first weights, and look at what the client gives."""
    before = sample_all(client, prompts, params)

    async def through_a_restart() -> list[Completion]:
        asked = asyncio.gather(*map(client.sample, prompts, params))
        await asyncio.sleep(1.0)
        await asyncio.to_thread(vllm.kill)
        vllm.start()
        return await asked

    began = time.monotonic()
    after = asyncio.run(through_a_restart())
    return {
        **compare(before, after),
        "versions": sorted({version for one in after for version in one.versions}),
        "took_s": round(time.monotonic() - began, 1),
    }


def stop(vllm: Vllm, policy: Policy, prompt: list[int]) -> dict[str, Any]:
    """How long it takes until a stopped vLLM is named, all of it or its engine alone, with a time-out of `SILENT_S`."""
    found: dict[str, Any] = {"timeout_s": SILENT_S}
    for name, leader in (("all", True), ("engine", False)):
        client = client_of(policy, SILENT_S)
        vllm.signal(signal.SIGSTOP, leader)
        began = time.monotonic()
        try:
            asyncio.run(client.sample(prompt, SamplingParams(MAX_TOKENS)))
            found[name] = "sampled"
        except UserError as error:
            found[name] = {"named_after_s": round(time.monotonic() - began, 1), "message": str(error)}
        finally:
            vllm.signal(signal.SIGCONT)
            client.close()
    return found


if __name__ == "__main__":
    main()
