"""The inputs that SLIME hands over: its `Sample`, the game in it, and the settings of the environment in `args`.

Neither SLIME nor PyTorch is imported. See docs/slime.md.
"""

import json
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any

from slimrl.environments.find import load_taskset
from slimrl.errors import UserError
from slimrl.types import Task, Taskset

ENVIRONMENT = "matching-game"
GAME = "game_state"
TIMEOUT_S = 120.0  # for one answer of the partner
# More than are played at once, because a short outage of the router or the partner fails all of those.
MAX_FAILURES = 1024
NOT_HERE = ("n", "games", "num_train", "num_test", "seed", "max_turns", "thoughts")


@dataclass
class Sample:
    """The part of SLIME's `slime.utils.types.Sample` that is used here. It replaces SLIME's class if SLIME is not
    installed."""

    class Status(Enum):
        """The end of a rollout, as SLIME names it."""

        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"
        FAILED = "failed"

    status: Any = Status.PENDING
    index: int | None = None
    group_index: int | None = None
    prompt: Any = ""
    label: Any = None
    tokens: list[int] = field(default_factory=list)
    response: str = ""
    response_length: int = 0
    loss_mask: list[int] = field(default_factory=list)
    rollout_log_probs: list[float] = field(default_factory=list)
    weight_versions: list[str] = field(default_factory=list)
    reward: Any = None
    remove_sample: bool = False
    session_id: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def task_of(sample: Sample) -> Task:
    """The task of a sample, whose game is in its metadata (`--metadata-key game_state`) or its label (`--label-key
    ground_truth`).

    The samples of a group have the same id, and so meet the same scripted partner. Raises UserError without a game.
    """
    place = group_of(sample)
    for held in (sample.metadata, sample.label):
        state = read_state(held)
        if state is not None:
            return Task(f"slime/{place}", {GAME: state})
    raise UserError(
        f"slime: sample {place} has no game: neither its metadata nor its label is a {GAME}. Make the data with "
        f"scripts/generate_data.py, and pass --prompt-data FILE --input-key prompt --metadata-key {GAME}."
    )


def group_of(sample: Sample) -> int:
    """The number of a sample's group, or its own where it is in none."""
    return (sample.index or 0) if sample.group_index is None else sample.group_index


def read_state(held: Any) -> dict[str, Any] | None:
    """The game state in a value: the value itself, its JSON, or an entry of it. None if there is none."""
    if isinstance(held, str):
        try:
            held = json.loads(held)
        except ValueError:
            return None
    if not isinstance(held, dict):
        return None
    return held if "table" in held else read_state(held.get(GAME))


def entries_of(args: Any) -> dict[str, Any]:
    """The entries of SLIME's `args` by name; each version of SLIME has others."""
    return {} if args is None else vars(args)


def environment_args(args: Any) -> dict[str, Any]:
    """The `args` of the environment: those in `matching_args`, and `max_turns`, which SLIME's examples set too.

    Raises UserError for a setting that cannot act here.
    """
    entries = entries_of(args)
    given = entries.get("matching_args") or {}
    if not isinstance(given, dict):
        raise UserError(
            f"slime: matching_args is {given!r:.100}, expected a mapping (see configs/matching_config.yaml)."
        )
    if wrong := [name for name in NOT_HERE if name in given]:
        reasons = {"max_turns": "max_turns stands by itself", "thoughts": "it is for slimrl's warm-up"}
        where = reasons.get(wrong[0], "games come from --prompt-data")
        raise UserError(f"slime: matching_args.{wrong[0]} cannot act: {where}. Remove it.")
    if given.get("partner") == "self":
        raise UserError(
            'slime: matching_args.partner = "self" cannot act: SLIME plays one side. It is for slimrl\'s `rl`.'
        )
    max_turns = entries.get("max_turns")
    return {**given, **({} if max_turns is None else {"max_turns": max_turns})}


def timeout_of(args: Any) -> float:
    """The longest wait for the partner in seconds, from `matching_timeout_s`."""
    return float(entries_of(args).get("matching_timeout_s") or TIMEOUT_S)


@cache
def taskset_of(environment: str) -> Taskset:
    """The taskset with these `args`, given as JSON. It is made once for a process, so that a language model as partner
    is checked once, and its budget is for all games."""
    return load_taskset(ENVIRONMENT, json.loads(environment))
