"""Environments of verifiers 0.1, its classic interface: `load_environment`, `MultiTurnEnv`, `ToolEnv`, `Rubric`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import verifiers
from verifiers.clients import Client
from verifiers.types import Response, ResponseMessage, ToolCall

from slimrl.environments.held_out import split_by_hash
from slimrl.errors import RolloutError, UserError
from slimrl.types import Environment, Split, Task, Taskset, Turn
from slimrl_envs.verifiers.conversation import Ask, Conversation, message_of

MODEL = "policy"
COLUMNS = ["stop_condition"]


class ClassicTaskset(Taskset):
    """The rows of an environment: `dataset` to train, `eval_dataset` for tests. The args are those of its
    `load_environment`. Where there is one of the two alone, the rows themselves decide which are held out."""

    def __init__(self, name: str, **args: Any) -> None:
        self._env = verifiers.load_environment(name, **args)
        if self._env.requires_group_rollouts or self._env.provides_advantages:
            raise UserError(
                f"verifiers:{name}: its rubric scores all rollouts of a group at once, and here each is scored by "
                "itself. Give it a rubric whose functions take one `completion`."
            )

    def tasks(self, split: Split) -> Sequence[Task]:
        """The rows of a split, by their place."""
        if split == "validation":
            return []
        train, test = self._env.build_dataset(), self._env.build_eval_dataset()
        if train is not None and test is not None:
            rows = list(enumerate(train if split == "train" else test))
        else:
            both = enumerate(train if train is not None else test or ())
            rows = [(place, row) for place, row in both if split_of(row) == split]
        return [Task(f"{split}/{place}", dict(row)) for place, row in rows]

    def environment(self, task: Task) -> Environment:
        """A fresh rollout on the task."""
        return Conversation(lambda ask: self._play(task, ask))

    async def _play(self, task: Task, ask: Ask) -> Turn:
        output = await self._env.run_rollout(dict(task.data), PolicyClient(ask), MODEL, {}, state_columns=COLUMNS)
        if output.get("error"):
            error = output["error"]
            said = error.get("error_chain_repr") if isinstance(error, Mapping) else error
            raise RolloutError("environment_error", str(said))
        return Turn(done=True, reward=float(output["reward"]), metrics=dict(output.get("metrics") or {}))


class PolicyClient(Client):  # type: ignore[misc]  # verifiers is not there for the type checker
    """The model client of one rollout: it asks the conversation that the rollout belongs to."""

    def __init__(self, ask: Ask) -> None:
        super().__init__(None)
        self._ask = ask

    async def get_response(
        self, prompt: Any, model: str, sampling_args: Any, tools: list[Any] | None = None, **kwargs: Any
    ) -> Any:
        """The policy's reply. How it is sampled is slimrl's affair."""
        if isinstance(prompt, str):
            raise RolloutError("environment_error", "it asks for the continuation of a text; only chats are played")
        reply = await self._ask([message_of(message) for message in prompt], [schema(tool) for tool in tools or ()])
        calls = [ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in reply.calls]
        finish = "tool_calls" if calls else "stop"
        message = ResponseMessage(
            content=reply.text, tool_calls=calls or None, finish_reason=finish, is_truncated=False
        )
        return Response(id=MODEL, created=0, model=model, message=message)

    def setup_client(self, config: Any) -> None:
        """There is no endpoint."""

    async def close(self) -> None:
        """There is no connection."""

    async def to_native_tool(self, tool: Any) -> Any:
        """Nothing is converted: `get_response` reads verifiers' own types."""
        return tool

    async def to_native_prompt(self, messages: Any) -> tuple[Any, dict[str, Any]]:
        """Nothing is converted."""
        return messages, {}

    async def get_native_response(self, *args: Any, **kwargs: Any) -> Any:
        """There is no other form of a response."""
        raise NotImplementedError

    async def raise_from_native_response(self, response: Any) -> None:
        """There is no other form of a response."""

    async def from_native_response(self, response: Any) -> Any:
        """There is no other form of a response."""
        return response


def schema(tool: Any) -> dict[str, Any]:
    """The schema of a tool, as chat templates take it."""
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def split_of(row: Mapping[str, Any]) -> Split:
    """The split that a row belongs to, by what it holds and not by its place."""
    text = json.dumps({key: value for key, value in row.items() if key != "example_id"}, sort_keys=True, default=str)
    return split_by_hash(text)
