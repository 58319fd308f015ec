"""TRL's side of `rl_step.py`: `GRPOTrainer`, run by the interpreter of an environment that has TRL."""

import tempfile
import time
from importlib.metadata import version
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.harness.step_work import (
    LEARNING_RATE,
    MAX_GRAD_NORM,
    NEW_TOKENS,
    NUM_ROLLOUTS,
    PROMPTS,
    ROLLOUTS_PER_PROMPT,
    WARM_UP_STEPS,
    SideReport,
    reward,
    side_arguments,
)


class Clock(TrainerCallback):  # type: ignore[misc]
    """Times each step. TRL asks for rewards once a step, right after it has sampled: which parts rollout and train."""

    def __init__(self, report: SideReport) -> None:
        self._report = report
        self._began = self._sampled = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._began = time.perf_counter()

    def reward(self, completions: list[Any], completion_ids: list[list[int]], **_: Any) -> list[float]:
        self._sampled = time.perf_counter()
        assert [len(ids) for ids in completion_ids] == [NEW_TOKENS] * NUM_ROLLOUTS, "a completion ended early"
        return [reward(completion[0]["content"]) for completion in completions]

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        self._report.add_step(state.global_step - 1, self._began, self._sampled, time.perf_counter())


def main() -> None:
    parser = side_arguments()
    parser.add_argument("--weights", choices=["bfloat16", "float32"], required=True)
    parser.add_argument("--micro-batch", type=int, required=True)
    arguments = parser.parse_args()
    report = SideReport(
        side="TRL GRPOTrainer",
        versions={name: version(name) for name in ("trl", "torch", "transformers")},
        settings=f"{arguments.dtype} compute, {arguments.weights} weights, micro-batches of {arguments.micro_batch} "
        "rollouts, no gradient checkpointing, transformers generate",
        prompt_tokens=[],
        num_threads=torch.get_num_threads(),
    )
    clock = Clock(report)
    with tempfile.TemporaryDirectory() as directory:
        config = GRPOConfig(
            output_dir=directory,
            max_steps=WARM_UP_STEPS + arguments.steps,
            per_device_train_batch_size=arguments.micro_batch,
            gradient_accumulation_steps=NUM_ROLLOUTS // arguments.micro_batch,
            num_generations=ROLLOUTS_PER_PROMPT,
            max_completion_length=NEW_TOKENS,
            generation_kwargs={"min_new_tokens": NEW_TOKENS},  # no end token before that
            temperature=1.0,
            beta=0.0,  # no reference model
            loss_type="grpo",
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant",
            max_grad_norm=MAX_GRAD_NORM,
            bf16=arguments.dtype == "bfloat16",
            model_init_kwargs={"dtype": arguments.weights},
            gradient_checkpointing=False,
            use_cpu=arguments.device == "cpu",
            use_vllm=False,
            dataloader_pin_memory=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = GRPOTrainer(
            model=str(arguments.model),
            reward_funcs=clock.reward,
            args=config,
            train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": text}]} for text in PROMPTS]),
            callbacks=[clock],
        )
        template = trainer.processing_class.apply_chat_template
        for text in PROMPTS:
            message = {"role": "user", "content": text}
            ids = template([message], tokenize=True, add_generation_prompt=True, return_dict=False)
            report.prompt_tokens.append(len(ids))
        trainer.train()
    if arguments.device == "cuda":
        report.peak_memory_gb = torch.cuda.max_memory_allocated() / 1e9
    report.write(arguments.output)


if __name__ == "__main__":
    main()
