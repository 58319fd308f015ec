"""Episodes of several turns of a user. The policy calls functions of simulated APIs until each request is done.

A reply with calls is answered by their results. A reply without calls ends the user's turn. BFCL's checker then makes
the policy's calls and the right calls again, each on new APIs, and compares states and results after each turn.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from inspect import getmembers, ismethod
from typing import Any

from slimrl.tools.base import ToolError, TypedTool, arguments_of
from slimrl.types import Message, Turn
from slimrl_envs.bfcl.calls import Call, json_schema, opening, read_calls, right_calls, tool_schemas
from slimrl_envs.bfcl.package import MODEL, Entry, Verdict, multi_turn_checker, new_api
from slimrl_envs.bfcl.single_turn import UNREADABLE

MAX_STEPS = 20  # BFCL's limit of replies with calls in a turn of the user
MORE_FUNCTIONS = "I have updated some more functions you can choose from. What about now?"
# Bounds of arguments with which a simulated function would compute for minutes.
BOUNDS: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "power": {"base": {"minimum": -1e15, "maximum": 1e15}, "exponent": {"minimum": -1000, "maximum": 1000}},
    "round_number": {"decimal_places": {"minimum": -1000, "maximum": 1000}},
    "logarithm": {"precision": {"minimum": 1, "maximum": 1000}},
    "square_root": {"precision": {"minimum": 1, "maximum": 1000}},
}

Steps = list[list[Call]]
"""The policy's replies with calls in one turn of the user. A reply is the list of its calls."""


class World:
    """The simulated APIs of one episode in their present state."""

    def __init__(self, entry: Entry) -> None:
        configs = entry["initial_config"]
        self.apis = {name: new_api(name, configs.get(name, {})) for name in entry["involved_classes"]}
        methods = {name: one for api in self.apis.values() for name, one in getmembers(api, ismethod)}
        self._tools = {one["name"]: _tool_of(one, methods[one["name"]]) for one in entry["function"]}

    def execute(self, call: Call) -> str:
        """Make a call, and return its result or its error as text. Arguments are checked against the function's
        schema."""
        name, arguments = call
        try:
            checked = arguments_of(self._tools, name, (), arguments)
            return _as_text(self._tools[name](**checked))
        except ToolError as error:
            return f"Error: {error}"
        except Exception as error:  # an API may raise any error, and the policy reads it, as in BFCL
            return f"Error during execution: {error}"


def _tool_of(function: Mapping[str, Any], method: Callable[..., Any]) -> TypedTool:
    schema = json_schema(function["parameters"])
    for parameter, bounds in BOUNDS.get(function["name"], {}).items():
        schema["properties"][parameter] |= bounds
    return TypedTool(function["name"], function["description"], schema, method)


def _as_text(result: object) -> str:
    """Return the result of a call as BFCL shows it."""
    try:
        return json.dumps(result) if isinstance(result, dict) else str(result)
    except TypeError:  # it contains an object, such as a number of mpmath
        return str(result)


def split_steps(replies: Sequence[str], num_turns: int) -> list[Steps]:
    """Return the steps of each turn of the user that the replies have begun."""
    turns: list[Steps] = [[]]
    for reply in replies:
        if calls := read_calls(reply):
            turns[-1].append(calls)
        elif len(turns) < num_turns:
            turns.append([])
    return turns


def check_turns(entry: Entry, turns: Sequence[Steps]) -> Verdict:
    """Return BFCL's verdict on the user's first `len(turns)` turns."""
    worlds = {False: World(entry), True: World(entry)}

    def execute(func_call_list: list[Call], model_name: str, **_: Any) -> tuple[list[str], dict[str, Any]]:
        world = worlds[model_name.endswith("_ground_truth")]
        return [world.execute(call) for call in func_call_list], world.apis

    try:
        return multi_turn_checker(execute)(turns, right_calls(entry)[: len(turns)], entry, entry["category"], MODEL)
    except UNREADABLE:
        return {"valid": False, "error_type": "multi_turn_checker:failed"}


class MultiTurnEpisode:
    """An episode on a row of a multi-turn category.

    The reward is 1 if all turns of the user are right, given with the last reply. With `partial`, each turn that is
    right after right turns pays an equal share at its end. A turn without right calls pays nothing.
    """

    def __init__(self, entry: Entry, partial: bool) -> None:
        self._entry, self._partial, self._world = entry, partial, World(entry)
        self._truth = right_calls(entry)
        self._turns: list[Steps] = [[]]
        self._num_right = 0  # turns of the user in a row, from the first
        self._num_calls = 0

    async def start(self) -> list[Message]:
        """Return the user's first request, with the functions as tools."""
        return opening(self._entry)

    async def step(self, reply: str) -> Turn:
        """Return the results of the reply's calls. Without calls, return the user's next request, or the end. A turn
        with more than `MAX_STEPS` replies with calls ends the episode without a reward."""
        if calls := read_calls(reply):
            self._turns[-1].append(calls)
            self._num_calls += len(calls)
            results: list[Message] = [{"role": "tool", "content": self._world.execute(call)} for call in calls]
            return Turn(len(self._turns[-1]) > MAX_STEPS, results, metrics=self._metrics())
        number = len(self._turns)
        is_right = self._num_right == number - 1 and bool(check_turns(self._entry, self._turns)["valid"])
        self._num_right += is_right
        if is_done := number == len(self._truth):
            messages: list[Message] = []
        else:
            self._turns.append([])
            messages = self._request(number)
        if self._partial:
            reward = is_right * bool(self._truth[number - 1]) / sum(map(bool, self._truth))
        else:
            reward = float(is_done and is_right)
        return Turn(is_done, messages, reward, self._metrics())

    def _request(self, number: int) -> list[Message]:
        """Return the user's request. The functions of a turn that adds functions are shown in the request."""
        if names := self._entry.get("missed_function", {}).get(str(number)):
            added = tool_schemas([one for one in self._entry["function"] if one["name"] in names])
            return [{"role": "user", "content": f"{json.dumps(added)}\n{MORE_FUNCTIONS}"}]
        return [{"role": "user", "content": one["content"]} for one in self._entry["question"][number]]

    def _metrics(self) -> dict[str, float]:
        right, num = self._num_right, len(self._truth)
        correct = dict.fromkeys(("correct", self._entry["category"]), float(right == num))
        return {**correct, "turns_right": right / num, "calls": float(self._num_calls)}
