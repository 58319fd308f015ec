"""Our losses, gradients and advantages beside TRL's on the same random numbers, in float64.

    python -m benchmarks.checks.losses_vs_trl --trl-python ~/trl-env/bin/python

TRL's side is its own code (`trl_losses.py`). Each case names the settings with which the two compute the same thing:
where a name means different things, that shows here. Writes `benchmarks/results/losses_vs_trl.json`.
"""

import argparse
import json
import random
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.measure import (
    RESULTS,
    Side,
    machine_facts,
    markdown_table,
    run_side,
    side_command,
    write_result,
)
from slimrl.config.loss import LossConfig
from slimrl.orchestrator.advantages import group_advantages
from slimrl.trainer.losses import TokenBatch, kl_to_reference, token_weights
from slimrl.trainer.own_loss import load_policy_loss

MAX_TOKENS = 40  # the constant that `dr_grpo` divides by
NUM_GROUPS, GROUP, LENGTH = 3, 4, 24
TABLE_HEAD = ("slimrl", "TRL", "loss", "difference", "largest difference of the gradient")
ADVANTAGE_HEAD = ("slimrl", "TRL", "largest difference")
TRL_LOSS = {"importance_sampling_level": "token", "epsilon": 0.2, "epsilon_high": 0.2, "beta": 0.0, "delta": None}


@dataclass(frozen=True, slots=True)
class Case:
    """A loss under its settings in both, and the batch that it is computed on."""

    ours: dict[str, Any]
    trl: dict[str, Any]
    batch: str = "apart"

    @property
    def name(self) -> str:
        return ", ".join(f"{key} {value}" for key, value in self.ours.items()).removeprefix("type ")


CASES = (
    Case({"type": "grpo"}, {"loss_type": "grpo"}),
    Case({"type": "grpo", "kl_beta": 0.04}, {"loss_type": "grpo", "beta": 0.04}),
    Case({"type": "grpo", "dual_clip": 3.0}, {"loss_type": "grpo", "delta": 3.0}),
    Case({"type": "dr_grpo"}, {"loss_type": "dr_grpo"}),
    Case({"type": "dapo"}, {"loss_type": "dapo", "epsilon_high": 0.28}),
    Case({"type": "ppo"}, {"loss_type": "bnpo"}),
    # TRL's `epsilon_high` is here the cap itself, ours what it exceeds 1 by.
    Case({"type": "cispo"}, {"loss_type": "cispo", "epsilon_high": 6.0}),
    Case({"type": "cispo", "eps_high": 4.0}, {"loss_type": "cispo", "epsilon_high": 5.0}),
    Case(
        {"type": "gspo"},
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
        batch="close",
    ),
)
ADVANTAGES = {  # our estimator -> TRL's trainer and setting
    "grpo": {"trainer": "GRPOTrainer", "scale_rewards": "group"},
    "dr_grpo": {"trainer": "GRPOTrainer", "scale_rewards": "none"},
    "rloo": {"trainer": "RLOOTrainer", "normalize_advantages": False},
}


@dataclass(frozen=True, slots=True)
class Batch:
    """Rollouts as TRL has them, (B, T): what is masked out stands between and behind what was sampled."""

    new: list[list[float]] = field(default_factory=list)
    old: list[list[float]] = field(default_factory=list)
    reference: list[list[float]] = field(default_factory=list)
    mask: list[list[int]] = field(default_factory=list)
    advantages: list[float] = field(default_factory=list)


def random_batch(spread: float, seed: int = 0) -> Batch:
    """Log-probabilities whose ratios are e^(spread x a normal number), and rollouts of 1 to `LENGTH` tokens."""
    rng, batch = random.Random(seed), Batch()
    for number in range(NUM_GROUPS * GROUP):
        length = 1 if number == 0 else rng.randrange(2, LENGTH + 1)
        batch.mask.append([int(t == 0 or (t < length and rng.random() < 0.8)) for t in range(LENGTH)])
        new = [-rng.expovariate(1.0) for _ in range(LENGTH)]
        batch.new.append(new)
        batch.old.append([value - rng.gauss(0, spread) for value in new])
        batch.reference.append([value - rng.gauss(0, 0.5) for value in new])
        batch.advantages.append(rng.gauss(0, 1))
    return batch


def batches() -> dict[str, Batch]:
    """`apart`: ratios that reach every clip and cap. `close`: ratios that only those of `gspo` are made for."""
    return {"apart": random_batch(1.0), "close": random_batch(0.001)}


def reward_groups(seed: int = 0) -> list[list[float]]:
    """Rewards of groups: random ones, all equal, nearly equal, one that stands out."""
    rng = random.Random(seed)
    found = [[rng.random() for _ in range(GROUP)] for _ in range(NUM_GROUPS)]
    return [*found, [0.7] * GROUP, [0.5, 0.5 + 1e-4, 0.5, 0.5 - 1e-4], [0.0, 0.0, 0.0, 1.0]]


def our_loss(case: Case, batch: Batch) -> dict[str, Any]:
    """The loss, and its gradient with respect to the log-probability of each token that counts."""
    loss = LossConfig(**case.ours).resolve()
    mask = torch.tensor(batch.mask, dtype=torch.bool)
    lengths = [sum(row) for row in batch.mask]
    sequence_N = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    old_N, new_N, reference_N = (
        torch.tensor(rows, dtype=torch.float64)[mask] for rows in (batch.old, batch.new, batch.reference)
    )
    advantage_N = torch.tensor(batch.advantages, dtype=torch.float64)[sequence_N]
    tokens = TokenBatch(new_N.requires_grad_(), old_N, advantage_N, sequence_N)
    loss_N, _ = load_policy_loss(loss)(tokens)
    loss_N = loss_N + loss.kl_beta * kl_to_reference(tokens.new_N, reference_N)
    weights = torch.tensor(token_weights(lengths, loss.aggregation, MAX_TOKENS), dtype=torch.float64)
    total = (loss_N * weights[sequence_N]).sum()
    total.backward()
    assert tokens.new_N.grad is not None
    return {"loss": total.item(), "gradient": tokens.new_N.grad.tolist()}


def our_advantages(estimator: str, rewards_PG: list[list[float]]) -> list[float]:
    """The advantages of groups that lie end to end."""
    loss = LossConfig(advantage=estimator).resolve()
    return [value for rewards_G in rewards_PG for value in group_advantages(rewards_G, [1] * GROUP, loss)]


def ask_trl(python: str) -> dict[str, Any]:
    """TRL's answers to all cases."""
    rewards = reward_groups()
    asked = {
        "batches": {name: asdict(batch) for name, batch in batches().items()},
        "losses": [
            {"name": case.name, "trl": TRL_LOSS | case.trl, "max_tokens": MAX_TOKENS, "batch": case.batch}
            for case in CASES
        ],
        "advantages": [{"name": name, "trl": settings, "rewards": rewards} for name, settings in ADVANTAGES.items()],
    }
    with tempfile.TemporaryDirectory() as directory:
        cases = Path(directory) / "cases.json"
        cases.write_text(json.dumps(asked), encoding="utf-8")
        command = [*side_command(python, "trl_losses"), "--cases", str(cases)]
        return run_side(Side("TRL", "float64", command), threads=1)


def compare(python: str) -> dict[str, Any]:
    """For every case both losses, and by how much the two sides differ."""
    theirs, data = ask_trl(python), batches()
    losses = {}
    for case in CASES:
        ours, trl = our_loss(case, data[case.batch]), theirs["losses"][case.name]
        losses[case.name] = {
            "trl_settings": case.trl,
            "loss": ours["loss"],
            "trl_loss": trl["loss"],
            "gradient_difference": largest(ours["gradient"], trl["gradient"]),
            "gradient_max": max(abs(value) for value in ours["gradient"]),
        }
    advantages = {
        name: {
            "trl_settings": settings,
            "difference": largest(our_advantages(name, reward_groups()), theirs["advantages"][name]),
        }
        for name, settings in ADVANTAGES.items()
    }
    return {"versions": theirs["versions"], "losses": losses, "advantages": advantages}


def largest(ours: list[float], theirs: list[float]) -> float:
    """The largest difference of two lists of equal length."""
    return max(abs(a - b) for a, b in zip(ours, theirs, strict=True))


def differences(found: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Every difference that there is to judge."""
    for name, row in found["losses"].items():
        yield f"loss of {name}", abs(row["loss"] - row["trl_loss"])
        yield f"gradient of {name}", row["gradient_difference"]
    for name, row in found["advantages"].items():
        yield f"advantages of {name}", row["difference"]


def table(found: dict[str, Any]) -> str:
    """Losses first, then advantages."""
    losses = [
        (
            name,
            _settings(row["trl_settings"]),
            f"{row['loss']:.6f}",
            f"{abs(row['loss'] - row['trl_loss']):.1e}",
            f"{row['gradient_difference']:.1e} of {row['gradient_max']:.2g}",
        )
        for name, row in found["losses"].items()
    ]
    advantages = [
        (f"advantage {name}", _settings(row["trl_settings"]), f"{row['difference']:.1e}")
        for name, row in found["advantages"].items()
    ]
    return f"{markdown_table(TABLE_HEAD, losses)}\n\n{markdown_table(ADVANTAGE_HEAD, advantages)}"


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in settings.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl-python", required=True, help="an interpreter that has TRL")
    parser.add_argument("--output", type=Path, default=RESULTS / "losses_vs_trl.json")
    arguments = parser.parse_args()
    facts = machine_facts()
    found = compare(arguments.trl_python)
    print(table(found))
    write_result(arguments.output, facts, found, {arguments.trl_python: "TRL_ENVIRONMENT/bin/python"})


if __name__ == "__main__":
    main()
