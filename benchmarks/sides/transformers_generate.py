"""The transformers side of `decode.py` and `prefill.py`: `generate`, run by an interpreter that has transformers."""

import time
from importlib.metadata import version
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, StoppingCriteriaList

from benchmarks.harness.generate_work import Case, GenerateReport, Timing, random_prompts, side_arguments

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


class Generator:
    """Times `generate` at each token, which it announces by asking whether to stop."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._stamps: list[float] = []

    def __call__(self, case: Case, seed: int) -> Timing:
        # The model's own, because `generate` fills what a given one leaves open from it. No token ends a sequence.
        self._module.generation_config = GenerationConfig(
            do_sample=True, temperature=1.0, top_k=0, use_cache=True, pad_token_id=0, max_new_tokens=case.new + 1
        )
        input_ids = torch.tensor(random_prompts(case, self._module.config.vocab_size, seed), device=self._module.device)
        self._stamps = []
        began = time.perf_counter()
        output = self._module.generate(
            input_ids, attention_mask=torch.ones_like(input_ids), stopping_criteria=StoppingCriteriaList([self._stamp])
        )
        assert output.shape == (case.batch, case.prompt + case.new + 1), "a sequence ended early"
        first, last = self._stamps[0], self._stamps[-1]
        return Timing(first - began, last - first, case.batch * case.new)

    def _stamp(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        if input_ids.is_cuda:
            torch.cuda.synchronize()
        self._stamps.append(time.perf_counter())
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def main() -> None:
    arguments = side_arguments().parse_args()
    torch.set_num_threads(arguments.threads)
    module = (
        AutoModelForCausalLM.from_pretrained(arguments.model, dtype=DTYPES[arguments.dtype]).eval().to(arguments.device)
    )
    report = GenerateReport(
        side="transformers",
        versions={name: version(name) for name in ("torch", "transformers")},
        settings=f"generate, {module.config._attn_implementation} attention; sampling at temperature 1",
        num_threads=arguments.threads,
    )
    report.measure(arguments.cases, arguments.passes, Generator(module))
    if arguments.device == "cuda":
        report.peak_memory_gb = torch.cuda.max_memory_allocated() / 1e9
    report.write(arguments.output)


if __name__ == "__main__":
    main()
