"""The inputs from SLIME: the settings in its `args`, the game in a sample, and the tokenizer.

Neither SLIME nor PyTorch is imported. See docs/slime.md.
"""

import json
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveFloat, ValidationError
from transformers import AutoTokenizer

from slimrl.environments.find import load_taskset
from slimrl.errors import UserError, nearest
from slimrl.io.text import parse_json
from slimrl.types import Task, Taskset
from slimrl_envs.matching_game.rules.game_files import deal_of

GAME = "game_state"
TIMEOUT_S = 120.0  # for one answer of the partner
FROM_DATA = "games come from --prompt-data"
# Settings of `matching_args` that have no effect, and why.
NOT_HERE = {
    **dict.fromkeys(("n", "games", "num_train", "num_test", "seed"), FROM_DATA),
    "max_turns": "max_turns stands by itself",
    "thoughts": "it is for slimrl's warm-up",
}


class Settings(BaseModel):
    """The entries of SLIME's `args` that slimrl reads. The file of `--custom-config-path` sets `max_turns` and the
    entries with the prefix `matching_`. An empty text means that an entry is not set. A limit of 0 means no limit."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    hf_checkpoint: str = ""
    sglang_router_ip: str = ""
    sglang_router_port: int = 0
    rollout_max_context_len: int = 0
    rollout_batch_size: int = 1
    use_rollout_routing_replay: bool = False
    save: str = ""
    max_turns: int | None = None
    matching_args: dict[str, Any] = {}
    matching_turn_tokens: int = 0
    matching_timeout_s: PositiveFloat = TIMEOUT_S

    @classmethod
    def of(cls, args: Any) -> "Settings":
        """Return the settings in SLIME's `args`. An entry that is None gets its default. Raises UserError for an
        invalid value, and for an unknown entry with the prefix `matching_`."""
        own = {name for name in vars(args) if name.startswith("matching_")}
        if unknown := sorted(own - cls.model_fields.keys()):
            raise UserError(f"slime: there is no setting `{unknown[0]}`.{nearest(unknown[0], cls.model_fields)}")
        try:
            return cls.model_validate({name: value for name, value in vars(args).items() if value is not None})
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(map(str, first["loc"]))
            raise UserError(f"slime: args.{name} is {first['input']!r:.100}: {first['msg']}.") from error

    @property
    def environment(self) -> str:
        """The `args` of the environment as JSON. Raises UserError for an entry that has no effect with SLIME."""
        given = self.matching_args
        if wrong := [name for name in NOT_HERE if name in given]:
            raise UserError(f"slime: matching_args.{wrong[0]} cannot act: {NOT_HERE[wrong[0]]}. Remove it.")
        if given.get("partner") == "self":
            raise UserError(
                'slime: matching_args.partner = "self" cannot act: SLIME plays one side. It is for slimrl\'s `rl`.'
            )
        return json.dumps(given | ({} if self.max_turns is None else {"max_turns": self.max_turns}), sort_keys=True)


def task_of(sample: Any) -> Task:
    """Return the task of a sample. The game is in the sample's metadata (`--metadata-key game_state`) or its label
    (`--label-key ground_truth`).

    The tasks of a group have the same id, so its samples play with the same scripted partner. Raises UserError without
    a game.
    """
    place = group_of(sample)
    for held in (sample.metadata, sample.label):
        if (state := read_state(held)) is not None:
            return game_task(f"slime/{place}", state)
    raise UserError(
        f"slime: sample {place} has no game: neither its metadata nor its label is a {GAME}. Make the data with "
        f"scripts/generate_data.py, and pass --prompt-data FILE --input-key prompt --metadata-key {GAME}."
    )


def game_task(task_id: str, state: dict[str, Any]) -> Task:
    """Return the task of a game. Raises UserError if the state is invalid."""
    try:
        deal_of(state, task_id)
    except ValueError as error:
        raise UserError(f"slime: the {GAME} of sample {task_id} is no game: {error}.") from error
    return Task(task_id, {GAME: state})


def group_of(sample: Any) -> int:
    """Return the number of a sample's group, or the sample's own index if it is in no group."""
    return (sample.index or 0) if sample.group_index is None else int(sample.group_index)


def read_state(held: Any) -> dict[str, Any] | None:
    """Return the game state in `held`, which is the state, its JSON, or a dict with the key `game_state`; else None."""
    held = parse_json(held)
    if not isinstance(held, dict):
        return None
    return held if "table" in held else read_state(held.get(GAME))


@cache
def taskset_of(environment: str) -> Taskset:
    """Return the taskset with these `args`, given as JSON. The result is cached in the process. So a partner that is a
    language model is checked only once, and all games share its budget."""
    return load_taskset("matching-game", json.loads(environment))


@cache
def tokenizer_of(hf_checkpoint: str) -> Any:
    """Return the tokenizer of a checkpoint, loaded once for a process. Raises UserError if it cannot be loaded."""
    try:
        return AutoTokenizer.from_pretrained(hf_checkpoint, trust_remote_code=False)
    except Exception as error:  # tokenizers raises plain `Exception`; in each case the directory needs mending
        raise UserError(
            f"slime: no tokenizer could be loaded from --hf-checkpoint {hf_checkpoint}: {type(error).__name__}: {error}"
        ) from error
