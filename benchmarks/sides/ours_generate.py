"""Our side of `decode.py` and `prefill.py`: the engine, sampling at temperature 1 and giving log-probabilities."""

from importlib.metadata import version
from typing import Any

import torch

from benchmarks.harness.generate_work import Case, GenerateReport, Stopwatch, Timing, random_prompts, side_arguments
from slimrl.config.model import ModelConfig
from slimrl.inference.engine import Engine
from slimrl.models.load import Policy, load_policy
from slimrl.types import SamplingParams


class Generator:
    """Makes an engine for each case, with as many slots as it has sequences."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        causal: Any = policy.module
        self._vocab_size: int = causal.get_input_embeddings().num_embeddings
        self._case: Case | None = None

    def __call__(self, case: Case, seed: int) -> Timing:
        if case != self._case:
            capacity = case.prompt + case.new + 1
            self._case = case
            never = frozenset[int]()  # no token stops a sequence
            self._engine = Engine(self._policy.module, never, case.batch, capacity)
        prompts = random_prompts(case, self._vocab_size, seed)
        watch = Stopwatch(case.batch)
        requests = [
            self._engine.submit(prompt, SamplingParams(max_tokens=case.new + 1, seed=row), lambda sampled: False)
            for row, prompt in enumerate(prompts)
        ]
        while self._engine.busy:
            self._engine.step()
            tokens = [len(request.logprobs) for request in requests]
            watch.after_step(sum(map(bool, tokens)), sum(tokens))
        assert all(len(request.logprobs) == case.new + 1 for request in requests), "a sequence ended early"
        return watch.timing()


def main() -> None:
    arguments = side_arguments().parse_args()
    config = ModelConfig(
        name=str(arguments.model), device=arguments.device, dtype=arguments.dtype, num_threads=arguments.threads
    )
    report = GenerateReport(
        side="slimrl",
        versions={name: version(name) for name in ("slimrl", "torch", "transformers")},
        settings="Engine; sampling at temperature 1 and log-probabilities",
        num_threads=arguments.threads,
    )
    report.measure(arguments.cases, arguments.passes, Generator(load_policy(config)))
    if arguments.device == "cuda":
        report.peak_memory_gb = torch.cuda.max_memory_allocated() / 1e9
    assert torch.get_num_threads() == arguments.threads
    report.write(arguments.output)


if __name__ == "__main__":
    main()
