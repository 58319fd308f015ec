"""Converts rollouts to JSON values and back: for worker processes, checkpoints and the files of rollouts.

The task's data are left out, because they are the same for all rollouts of a task. The reader has the task, or the
writer adds them. All other values are exact: see `encode_floats` for numbers that are not finite.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any

from pydantic import GetPydanticSchema
from pydantic_core import core_schema

from slimrl.io.files import decode_floats, encode_floats
from slimrl.types import Rollout, StopReason

FLOATS = ("logprobs", "reward", "turn_rewards", "metrics", "env_s")


def encode_rollout(rollout: Rollout) -> dict[str, Any]:
    """Return a rollout as JSON values, without its `task_data`."""
    values = {one.name.removesuffix("_T"): getattr(rollout, one.name) for one in fields(rollout)}
    del values["task_data"]
    values["loss_mask"] = [int(mask) for mask in rollout.loss_mask_T]
    return values | {name: encode_floats(values[name]) for name in FLOATS}


def decode_rollout(values: Mapping[str, Any], task_data: Mapping[str, Any]) -> Rollout:
    """Convert the JSON values of a rollout back. Ignore unknown keys. Raise ValueError if the values are malformed."""
    # In checkpoints of earlier versions, names end with "_T", and `env_s` may be missing.
    found = {name.removesuffix("_T"): value for name, value in values.items()}
    try:
        found |= {name: decode_floats(found[name]) for name in FLOATS if name in found}
        found["loss_mask"] = map(bool, found["loss_mask"])
        found["stop_reason"] = StopReason(found["stop_reason"])
        for name in ("token_ids", "loss_mask", "logprobs", "versions", "turn_rewards", "messages", "env_s"):
            found[name] = tuple(found.get(name, ()))
        given = {one.name: found[one.name.removesuffix("_T")] for one in fields(Rollout) if one.name != "task_data"}
        return Rollout(**given, task_data=task_data)
    except (LookupError, TypeError, AssertionError) as error:
        raise ValueError(f"is no rollout: {type(error).__name__}: {error}") from error


def _decode(values: Any) -> Rollout:
    return values if isinstance(values, Rollout) else decode_rollout(values, {})


# The type of a rollout in a pydantic model, read with empty `task_data`. Python 3.11 needs the explicit schema, because
# there pydantic refuses the TypedDicts of `types.py`.
_SCHEMA = core_schema.no_info_plain_validator_function(
    _decode, serialization=core_schema.plain_serializer_function_ser_schema(encode_rollout)
)
RolloutField = Annotated[Rollout, GetPydanticSchema(lambda source, handler: _SCHEMA)]
