"""The state that an orchestrator needs to continue a run. A checkpoint stores it as JSON.

Floats are restored exactly. JSON has no nan and no infinity, so these values are written as text.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from slimrl.config.base import describe_faults
from slimrl.errors import UserError
from slimrl.orchestrator.pool import PlayedGroup
from slimrl.types import Message, Rollout, StopReason

Number = Annotated[float, Field(strict=False)]  # also "NaN", because JSON has no such number
Position = Annotated[int, Field(ge=0)]


class _Saved(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, ser_json_inf_nan="strings")


class SavedRollout(_Saved):
    """A `types.Rollout` in a checkpoint."""

    task_id: str
    token_ids_T: tuple[int, ...]
    loss_mask_T: tuple[bool, ...]
    logprobs_T: tuple[Number, ...]
    versions_T: tuple[int, ...]
    reward: Number
    turn_rewards: tuple[Number, ...]
    messages: tuple[dict[str, Any], ...]
    metrics: dict[str, Number]
    failure: str
    failure_detail: str
    role: str
    stop_reason: StopReason
    env_s: tuple[float, ...] = ()  # missing in checkpoints of earlier versions, like the next field
    task_data: dict[str, Any] = {}

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.rollout()  # asserts that the fields are consistent
        return self

    def rollout(self) -> Rollout:
        """Return the rollout."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return Rollout(**fields | {"messages": cast(tuple[Message, ...], self.messages)})


class SavedGroup(_Saved):
    """A finished group that no batch has used yet."""

    position: Position
    version: int
    rollouts: tuple[SavedRollout, ...]

    def group(self) -> PlayedGroup:
        """Return the group."""
        return PlayedGroup(self.position, self.version, tuple(rollout.rollout() for rollout in self.rollouts))


class OrchestratorState(_Saved):
    """The state that a run needs to continue.

    `data_position` is the number of tasks drawn so far, which is the next position in the curriculum. The task at a
    position depends on `num_environments`. `role_means` are the running means of the roles' rewards
    (`orchestrator/roles.py`). `waiting` are the groups that wait for a batch. `in_flight` are the positions of
    unfinished groups. These groups are played again from the start, with the same seeds.
    """

    data_position: Position = 0
    num_environments: Annotated[int, Field(ge=0)] = 0
    role_means: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = {}
    waiting: tuple[SavedGroup, ...] = ()
    in_flight: tuple[Position, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        content: dict[str, Any] = json.loads(self.model_dump_json())
        return content


def save_group(group: PlayedGroup) -> SavedGroup:
    """Convert a group to the format of a checkpoint."""
    rollouts = tuple(SavedRollout(**asdict(rollout)) for rollout in group.rollouts)
    return SavedGroup(position=group.position, version=group.version, rollouts=rollouts)


def read_state(content: Mapping[str, Any]) -> OrchestratorState:
    """Parse the state in a checkpoint; `content` is empty in a new run. Raises UserError if `content` is malformed."""
    try:
        return OrchestratorState.model_validate_json(json.dumps(dict(content)))
    except ValidationError as error:
        raise UserError(
            f"the orchestrator's state in the checkpoint's progress.json cannot be what slimrl wrote: "
            f"{describe_faults(error)}. Delete that checkpoint and `--resume` continues from the one before it."
        ) from None
