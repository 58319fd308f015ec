"""The state that an orchestrator needs to continue a run. A checkpoint stores it as JSON."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slimrl.config.base import describe_faults
from slimrl.errors import UserError
from slimrl.orchestrator.pool import PlayedGroup

Position = Annotated[int, Field(ge=0)]


class OrchestratorState(BaseModel):
    """The state that a run needs to continue.

    `data_position` is the number of tasks drawn so far, which is the next position in the curriculum. The task at a
    position depends on `num_environments`. `role_means` are the running means of the roles' rewards
    (`orchestrator/roles.py`). `waiting` are the groups that wait for a batch. Their rollouts have no `task_data`: the
    position determines the task. `in_flight` are the positions of unfinished groups. These groups are played again
    from the start, with the same seeds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    data_position: Position = 0
    num_environments: Annotated[int, Field(ge=0)] = 0
    role_means: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = {}
    waiting: tuple[PlayedGroup, ...] = ()
    in_flight: tuple[Position, ...] = ()


def read_state(content: Mapping[str, Any]) -> OrchestratorState:
    """Parse the state in a checkpoint; `content` is empty in a new run. Raises UserError if `content` is malformed."""
    try:
        return OrchestratorState.model_validate_json(json.dumps(dict(content)))
    except ValidationError as error:
        raise UserError(
            f"the orchestrator's state in the checkpoint's progress.json cannot be what slimrl wrote: "
            f"{describe_faults(error)}. Delete that checkpoint and `--resume` continues from the one before it."
        ) from None
