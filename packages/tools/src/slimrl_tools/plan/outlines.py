"""Outlines of recorded runs of the recipes: the lengths of each rollout's parts and its common prefix, but no texts.

`outlines/NAME.json` is part of slimrl; `benchmarks/learning/outlines.py` makes it from a run. A rollout is a row

    [like, shared, unsampled, sampled, unsampled, sampled, ...]

It shares its first `shared` tokens with the earlier rollout `like`, and its parts alternate.
"""

import itertools
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from slimrl.config.run import RLConfig
from slimrl.inference.cache import common_prefix_length
from slimrl.types import Sample
from slimrl_tools.plan.workload import Workload, few, sample_of

Outline = list[list[int]]


def from_recorded(config: RLConfig) -> Workload | None:
    """Return the rollouts of a recorded run with the same tasks, model and sampling; None if there is none, or
    `seq_len` would truncate its rollouts."""
    asked = subject_of(config)
    for recorded in _all_recorded():
        longest = max(sum(parts) for _, _, *parts in recorded["rollouts"])
        has_room = config.seq_len == recorded["seq_len"] or longest < min(config.seq_len, recorded["seq_len"])
        if recorded["subject"] == asked and has_room:
            samples = few(samples_of(recorded["rollouts"]))
            multiple = config.orchestrator.batch_size / len(samples)
            source = f"lengths of a recorded run of {recorded['recipe']}"
            return Workload(samples, multiple, source, recorded["env_s"], useless=recorded["useless"])
    return None


def subject_of(config: RLConfig) -> dict[str, Any]:
    """Return the settings that determine the lengths of rollouts."""
    episodes = config.orchestrator
    return {
        "model": config.model.name,
        "environments": [{"id": env.id, "args": env.args} for env in episodes.env],
        "group": episodes.rollouts_per_example,
        "max_turns": episodes.max_turns,
        "sampling": episodes.sampling.model_dump(mode="json"),
        "warmup_steps": config.warmup.max_steps,
    }


def outline_of(samples: Sequence[Sample]) -> Outline:
    """Return the outline of samples."""
    rows: Outline = []
    for place, sample in enumerate(samples):
        shared, like = max(
            (
                (common_prefix_length(sample.token_ids_T, earlier.token_ids_T), number)
                for number, earlier in enumerate(samples[:place])
            ),
            default=(0, 0),
        )
        parts = [len([*part]) for _, part in itertools.groupby(sample.loss_mask_T)]
        rows.append([like, shared, *parts])
    return rows


def samples_of(outline: Outline) -> list[Sample]:
    """Return samples of made-up tokens with this outline."""
    fresh, samples = itertools.count(), list[Sample]()
    for like, shared, *parts in outline:
        num = sum(parts)
        known = samples[like].token_ids_T[:shared] if shared else ()
        tokens = [*known, *itertools.islice(fresh, num - shared)]
        mask = [
            trained
            for length, trained in zip(parts, itertools.cycle((False, True)), strict=False)
            for _ in range(length)
        ]
        samples.append(sample_of(tokens, mask, 1.0 if len(samples) % 2 else -1.0))
    return samples


@cache
def _all_recorded() -> tuple[dict[str, Any], ...]:
    found = [one for one in (files("slimrl_tools.plan") / "outlines").iterdir() if one.name.endswith(".json")]
    return tuple(json.loads(one.read_text(encoding="utf-8")) for one in sorted(found, key=lambda one: one.name))
