"""Tasksets of verifiers 0.4 (its interface `v1`): one seat of the taskset's env is the policy's.

The env itself runs: its setup and finalize, task hooks, tool servers, stops, judges. Only the policy's model calls end
in slimrl (`v1_policy.py`).
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from verifiers.v1 import Agents, Env, EnvInfo, Episode, TraceTask
from verifiers.v1.configs.agent import AgentConfig, agent_config_fields, resolve_agent
from verifiers.v1.configs.env import default_agent_harness
from verifiers.v1.harnesses.null.harness import NullHarnessConfig
from verifiers.v1.interception import requires_tunnel
from verifiers.v1.runtimes import SubprocessConfig, runtime_is_local
from verifiers.v1.utils.loaders import default_harness_id, load_environment, resolve_env_config

from slimrl.environments.held_out import split_by_hash
from slimrl.errors import RolloutError, UserError
from slimrl.types import Environment, Split, Task, Taskset, Turn
from slimrl_envs.verifiers.conversation import Ask, Conversation
from slimrl_envs.verifiers.v1_policy import MODEL, POLICY, ChatLoop, Interception, Seat

TOKEN_LIMITS = ("max_input_tokens", "max_output_tokens", "max_total_tokens")


class TasksetV1(Taskset):
    """The tasks of a verifiers taskset. The args are the fields of its env's config: `taskset`, and one for each seat.

    `num_tasks` is how many tasks are loaded, 0 for all. `test` has the fields that differ for tests, as `{taskset =
    {split = "test"}}`; without it the tasks themselves decide which of them are held out.
    """

    def __init__(
        self, name: str, num_tasks: int = 0, test: Mapping[str, Any] | None = None, **config: Mapping[str, Any]
    ) -> None:
        self._num_tasks = num_tasks
        self._has_tests = test is not None
        self._served = {"train": Served(name, config)}
        if test is not None:
            self._served["test"] = Served(name, merge(config, test))
        taskset = self._served["train"].env.taskset
        if num_tasks < 0 or (not num_tasks and not taskset.bounded):
            raise UserError(
                f"verifiers:{name}: its tasks never end; say how many to take of them, as `num_tasks = 1000`."
            )

    def tasks(self, split: Split) -> Sequence[Task]:
        """The tasks of a split, by their place in the taskset."""
        if split == "validation":
            return []
        if self._has_tests:
            return self._load(split, split)
        return [task for task in self._load("train", split) if split_of(task.data) == split]

    def environment(self, task: Task) -> Environment:
        """A fresh rollout on the task."""
        served = self._served["test" if self._has_tests and task.id.startswith("test/") else "train"]
        return Conversation(lambda ask: served.play(task, ask))

    def _load(self, served: str, split: Split) -> list[Task]:
        taskset = self._served[served].env.taskset
        found = taskset.take(self._num_tasks) if self._num_tasks else taskset
        return [Task(f"{split}/{one.data.idx}", one.data.model_dump(mode="json")) for one in found]


class Served:
    """An env, and the shared resources of the episodes in play: tool servers, and where model calls end."""

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        own = {**config, "taskset": {**config.get("taskset", {}), "id": name}}
        self.env: Env[Any] = load_environment(local_config(resolve_env_config(own), name))
        self._seat = policy_seat(self.env, name)
        pinned = getattr(self.env.config, self._seat).harness
        self._in_process = pinned is None and default_harness_id(name) == "bash"
        self._holder: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Interception] | None = None
        self._released = asyncio.Event()
        self._num_users = 0

    async def play(self, task: Task, ask: Ask) -> Turn:
        """One episode of the env. Raises RolloutError where verifiers calls it failed."""
        interception = await self._enter()
        try:
            return await self._play(interception, task, ask)
        finally:
            await self._leave()

    async def _play(self, interception: Interception, given: Task, ask: Ask) -> Turn:
        task = self._task_class(self._data_class.model_validate(given.data), self.env.config.taskset.task)
        traced = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
        episode = Episode(env=EnvInfo(id=self.env.config.env_id), task=traced)
        seats: list[Seat] = []

        def seat(name: str, config: AgentConfig) -> Seat:
            is_policy = name == self._seat
            agent = Seat(self._resolve(config, is_policy), name, interception, self._task_class, episode.traces)
            if is_policy:
                agent.ask = ask
                if self._in_process:
                    agent.harness = ChatLoop(agent.config.harness, interception)
            seats.append(agent)
            return agent

        agents = Agents(self.env.config, seat)
        try:
            await self.env.setup(agents)
            await self.env.run(task, agents)
            await self.env.finalize(task, episode)
        finally:
            for one in seats:
                one.forget()
        return self._turn(episode)

    def _turn(self, episode: Any) -> Turn:
        failed = next((trace for trace in episode.traces if not trace.ok), None)
        if failed is not None:
            error = failed.last_error
            said = f"{error.type}: {error.message}" if error else "the rollout failed"
            raise RolloutError("environment_error", f"{failed.agent.name}: {said}")
        own = [trace for trace in episode.traces if trace.agent.name == self._seat]
        if len(own) != 1:
            raise RolloutError("environment_error", f"the policy's seat `{self._seat}` ran {len(own)} times, not once")
        rewards = {name: reward.score for name, reward in own[0].rewards.items()}
        return Turn(done=True, reward=float(own[0].reward), metrics={**own[0].metrics, **rewards})

    def _resolve(self, config: AgentConfig, is_policy: bool) -> AgentConfig:
        is_ours = is_policy and self._in_process
        harness = NullHarnessConfig(id="null") if is_ours else default_agent_harness(self.env.config.taskset.id)
        return resolve_agent(config, model=MODEL, client=POLICY if is_policy else None, harness=harness)

    @cached_property
    def _task_class(self) -> Any:
        return type(self.env.taskset).task_type()

    @cached_property
    def _data_class(self) -> Any:
        return self._task_class.data_type()

    async def _enter(self) -> Interception:
        """The shared resources, for one more episode, which must call `_leave`."""
        loop = asyncio.get_running_loop()
        if self._holder is None or self._holder.done() or self._holder.get_loop() is not loop:
            self._num_users, self._ready, self._released = 0, loop.create_future(), asyncio.Event()
            self._holder = loop.create_task(self._hold(self._ready, self._released))
        assert self._ready is not None
        self._num_users += 1
        try:
            return await asyncio.shield(self._ready)
        except BaseException:
            await self._leave()
            raise

    async def _leave(self) -> None:
        self._num_users -= 1
        holder = self._holder
        if not self._num_users and holder is not None:
            # Forgotten before the wait, so that an episode that starts meanwhile opens others.
            self._holder = None
            self._released.set()
            await asyncio.wait({holder})

    async def _hold(self, ready: "asyncio.Future[Interception]", released: asyncio.Event) -> None:
        """Keep the shared resources open. It runs in a task of its own, which opens and closes all of them."""
        try:
            async with self.env.shared_tools() as tools:
                interception = Interception(tools, self._needs_tunnel(tools))
                async with interception.open(listens=self._listens(tools)):
                    try:
                        await self.env.start()
                        ready.set_result(interception)
                        await released.wait()
                    finally:
                        await self.env.stop()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)

    def _toolsets(self) -> list[Any]:
        return list(self._task_class.toolsets(self.env.config.taskset.task))

    def _listens(self, tools: Mapping[str, Any]) -> bool:
        """Whether anything outside of this process asks: a harness that is a program, or a server of tools."""
        seats = len(agent_config_fields(self.env.config))
        return not self._in_process or seats > 1 or bool(tools) or bool(self._toolsets())

    def _needs_tunnel(self, tools: Mapping[str, Any]) -> bool:
        configs = agent_config_fields(self.env.config).values()
        is_local = all(runtime_is_local(config.runtime) for config in configs)
        return bool(requires_tunnel(is_local, [toolset.config for toolset in self._toolsets()], tools.values()))


def policy_seat(env: Any, name: str) -> str:
    """The name of the policy's seat: the one that has no endpoint of its own. Raises UserError if it is not one, or is
    limited by tokens, which an environment does not see."""
    seats = agent_config_fields(env.config)
    free: list[str] = [seat for seat, config in seats.items() if config.client is None]
    if len(free) != 1:
        raise UserError(
            f"verifiers:{name}: {len(free)} of its seats ({', '.join(seats)}) have no `client` of their own; exactly "
            f"one must have none, for the policy. Name an endpoint for the others, as `args = {{{next(iter(seats))} = "
            '{client = {base_url = "http://..."}, model = "..."}}`.'
        )
    limits = [limit for limit in TOKEN_LIMITS if getattr(seats[free[0]], limit) is not None]
    if limits:
        raise UserError(
            f"verifiers:{name}: `{free[0]}.{limits[0]}` cannot act, as an environment of slimrl sees no tokens. Set "
            "`seq_len` and `orchestrator.sampling.max_tokens`."
        )
    return free[0]


def local_config(config: Any, name: str) -> Any:
    """Return the config with seats on this machine by default: verifiers' own default is a paid service."""
    seats = {
        seat: one.model_copy(update={"runtime": SubprocessConfig()})
        for seat, one in agent_config_fields(config).items()
        if "runtime" not in one.model_fields_set
    }
    return config.model_copy(update=seats)


def split_of(data: Mapping[str, Any]) -> Split:
    """The split that a task belongs to, by its content and not by its place."""
    text = json.dumps({key: value for key, value in data.items() if key != "idx"}, sort_keys=True)
    return split_by_hash(text)


def merge(config: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The config with the change's fields; tables are merged."""
    merged = dict(config)
    for key, value in change.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
