"""TRL's side of `losses_vs_trl.py`: losses, gradients and advantages, by the methods of TRL's own trainers.

Run by the interpreter of an environment that has TRL. The methods are called on stand-ins that have only what they
read, because a whole trainer would want a model and data. Nothing of TRL is copied here.
"""

import argparse
import json
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import trl
from trl import GRPOTrainer

ACCELERATOR = SimpleNamespace(
    device=torch.device("cpu"),
    num_processes=1,
    process_index=0,
    gather=lambda tensor: tensor,
    reduce=lambda tensor, reduction: tensor,
)


def loss_and_gradient(case: dict[str, Any], batch: dict[str, Any]) -> dict[str, Any]:
    """The loss of a batch, and its gradient with respect to each token's log-probability."""
    new = torch.tensor(batch["new"], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor(batch["mask"])
    settings = case["trl"]
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (new, torch.zeros_like(new), None),
        _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list)},
        accelerator=ACCELERATOR,
        args=SimpleNamespace(delta=settings["delta"], use_bias_correction_kl=False, steps_per_generation=1),
        aux_loss_enabled=False,
        beta=settings["beta"],
        current_gradient_accumulation_steps=1,
        epsilon_high=settings["epsilon_high"],
        epsilon_low=settings["epsilon"],
        importance_sampling_level=settings["importance_sampling_level"],
        loss_type=settings["loss_type"],
        max_completion_length=case["max_tokens"],
        model=SimpleNamespace(training=True),
        off_policy_mask_threshold=None,
        top_entropy_quantile=1.0,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
    )
    ids = torch.zeros_like(mask)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": torch.ones_like(ids[:, :1]),
        "completion_ids": ids,
        "completion_mask": torch.ones_like(ids),
        "tool_mask": mask,
        "advantages": torch.tensor(batch["advantages"], dtype=torch.float64),
        "old_per_token_logps": torch.tensor(batch["old"], dtype=torch.float64),
        "ref_per_token_logps": torch.tensor(batch["reference"], dtype=torch.float64),
        "num_items_in_batch": mask.sum(),
    }
    loss = GRPOTrainer._compute_loss(trainer, None, inputs)
    loss.backward()
    assert new.grad is not None
    return {"loss": loss.item(), "gradient": new.grad[mask.bool()].tolist()}


def advantages(settings: dict[str, Any], rewards_PG: list[list[float]]) -> list[float]:
    """The advantages of groups of equal size, laid end to end. `settings` name the trainer and what it is told."""
    rewards = torch.tensor(rewards_PG, dtype=torch.float64).flatten()
    num = len(rewards)
    told = dict(settings)
    name = told.pop("trainer")
    generated: dict[str, tuple[Any, ...]] = {
        "GRPOTrainer": ([[1]] * num, [[1]] * num, None, ["text"] * num, None, {}, None, None),
        "RLOOTrainer": ([[1]] * num, [[1]] * num, ["text"] * num),
    }
    trainer = SimpleNamespace(
        _calculate_rewards=lambda *_: rewards[:, None],
        _generate=lambda prompts: generated[name],
        _get_per_token_logps_and_entropies=lambda *_, **__: (torch.zeros(num, 1), None, None),
        _logs={column: [] for column in ("prompt", "completion", "advantages")} | {"rewards": defaultdict(list)},
        _metrics={"train": defaultdict(list)},
        _pending_extra_logs={},
        _pending_metrics={},
        _tokenizer=SimpleNamespace(pad_token_id=0),
        accelerator=ACCELERATOR,
        args=SimpleNamespace(
            gradient_accumulation_steps=1,
            gradient_checkpointing_kwargs=None,
            per_device_train_batch_size=num,
            steps_per_generation=1,
        ),
        beta=0.0,
        environment_factories=None,
        environments=None,
        mask_truncated_completions=False,
        model=SimpleNamespace(training=True, is_gradient_checkpointing=False),
        multi_objective_aggregation="sum_then_normalize",
        num_generations=len(rewards_PG[0]),
        num_iterations=1,
        pad_to_multiple_of=None,
        reward_clip_range=None,
        reward_func_names=["reward"],
        reward_weights=torch.ones(1, dtype=torch.float64),
        tools=None,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        **told,
    )
    inputs = [{"prompt": "text"} for _ in range(num)]
    scored = getattr(trl, name)._generate_and_score_completions(trainer, inputs)
    found: list[float] = scored["advantages"].tolist()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, required=True, help="what `losses_vs_trl.py` asks, as JSON")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    asked = json.loads(arguments.cases.read_text(encoding="utf-8"))
    answers = {
        "versions": {name: version(name) for name in ("trl", "torch")},
        "losses": {case["name"]: loss_and_gradient(case, asked["batches"][case["batch"]]) for case in asked["losses"]},
        "advantages": {case["name"]: advantages(case["trl"], case["rewards"]) for case in asked["advantages"]},
    }
    arguments.output.write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main()
