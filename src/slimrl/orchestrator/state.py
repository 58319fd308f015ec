"""What a run needs of its orchestrator to go on, as JSON that a checkpoint keeps.

Numbers keep all their bits: JSON's floats are written so that they read back the same, and nan and infinity as text.
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

Number = Annotated[float, Field(strict=False)]  # also "NaN", as JSON has no such number
Position = Annotated[int, Field(ge=0)]


class _Saved(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, ser_json_inf_nan="strings")


class SavedRollout(_Saved):
    """A `types.Rollout`."""

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
    env_s: tuple[float, ...] = ()  # checkpoints from before these two were kept lack them
    task_data: dict[str, Any] = {}

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.rollout()  # which asserts that the fields go together
        return self

    def rollout(self) -> Rollout:
        """The rollout."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return Rollout(**fields | {"messages": cast(tuple[Message, ...], self.messages)})


class SavedGroup(_Saved):
    """A group that has finished, and that no batch has used yet."""

    position: Position
    version: int
    rollouts: tuple[SavedRollout, ...]

    def group(self) -> PlayedGroup:
        """The group."""
        return PlayedGroup(self.position, self.version, tuple(rollout.rollout() for rollout in self.rollouts))


class OrchestratorState(_Saved):
    """All that a run needs to go on.

    These are the number of tasks drawn so far, which is a position in the curriculum; the number of environments, which
    decides the task of each position; the running means of the roles'
    rewards (`orchestrator/roles.py`); the groups that wait for a batch; and the positions of those that were being
    played, which are played again from the start, with the same seeds.
    """

    data_position: Position = 0
    num_environments: Annotated[int, Field(ge=0)] = 0
    role_means: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = {}
    waiting: tuple[SavedGroup, ...] = ()
    in_flight: tuple[Position, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The state as JSON can hold it."""
        content: dict[str, Any] = json.loads(self.model_dump_json())
        return content


def save_group(group: PlayedGroup) -> SavedGroup:
    """The group as a checkpoint holds it."""
    rollouts = tuple(SavedRollout(**asdict(rollout)) for rollout in group.rollouts)
    return SavedGroup(position=group.position, version=group.version, rollouts=rollouts)


def read_state(content: Mapping[str, Any]) -> OrchestratorState:
    """The state in a checkpoint; an empty one is that of a new run. Raises UserError if it is none."""
    try:
        return OrchestratorState.model_validate_json(json.dumps(dict(content)))
    except ValidationError as error:
        raise UserError(
            f"the orchestrator's state in the checkpoint's progress.json cannot be what slimrl wrote: "
            f"{describe_faults(error)}. Delete that checkpoint and `--resume` continues from the one before it."
        ) from None
