"""The envs of verifiers 0.4 (its interface `v1`). An env has a seat for each agent. The policy is one of the agents.

verifiers runs the env itself: setup and finalize, task hooks, tool servers, stop conditions and judges. slimrl only
answers the policy's model calls (`policy.py`).
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from verifiers.v1 import Agents, EnvInfo, Episode, TraceTask
from verifiers.v1.agent import _EpisodeAgent
from verifiers.v1.configs.agent import AgentConfig, agent_config_fields, resolve_agent
from verifiers.v1.configs.env import default_agent_harness
from verifiers.v1.harnesses.null.harness import NullHarnessConfig
from verifiers.v1.interception import InterceptionServerConfig
from verifiers.v1.runtimes import SubprocessConfig
from verifiers.v1.utils.loaders import default_harness_id, load_environment, resolve_env_config

from slimrl.errors import RolloutError, UserError
from slimrl.types import Task, Turn
from slimrl_envs.verifiers.conversation import Ask
from slimrl_envs.verifiers.policy import MODEL, POLICY, ChatLoop, PolicyClient

TOKEN_LIMITS = ("max_input_tokens", "max_output_tokens", "max_total_tokens")


class Served:
    """An env, and the resources that its running episodes share: the tool servers and the server for model calls."""

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        own = {**config, "taskset": {**config.get("taskset", {}), "id": name}}
        self.env: Any = load_environment(local_config(resolve_env_config(own)))
        self._seats = agent_config_fields(self.env.config)
        self._seat = policy_seat(self._seats, name)
        self._task_class: Any = type(self.env.taskset).task_type()
        self._in_process = self._seats[self._seat].harness is None and default_harness_id(name) == "bash"
        self._policy = PolicyClient()
        self._holder: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Any] | None = None  # holds the interception and the shared tools
        self._released = asyncio.Event()
        self._num_users = 0

    async def play(self, task: Task, ask: Ask) -> Turn:
        """Play one episode of the env. Raise RolloutError if verifiers reports that the episode failed."""
        shared = await self._enter()
        asking: list[str] = []

        def note(trace: Any) -> None:
            self._policy.asks[trace.id] = ask
            asking.append(trace.id)

        try:
            return await self._play(task, note, shared)
        finally:
            for trace_id in asking:  # further requests of the episode are refused
                self._policy.asks.pop(trace_id, None)
            await self._leave()

    async def _play(self, given: Task, note: Any, shared: tuple[Any, Any]) -> Turn:
        interception, tools = shared
        data = self._task_class.data_type().model_validate(given.data)
        task = self._task_class(data, self.env.config.taskset.task)
        traced = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
        episode = Episode(env=EnvInfo(id=self.env.config.env_id), task=traced)

        def seat(name: str, config: AgentConfig) -> Any:
            is_policy = name == self._seat
            agent = _EpisodeAgent(
                self._resolve(config, is_policy),
                interception=interception,
                name=name,
                shared_tools=tools,
                task_cls=self._task_class,
                gate=None,
                completed=episode.traces,
                on_trace=note if is_policy else None,
                on_discard=None,
                warned_resources=set(),
            )
            if is_policy and self._in_process:
                agent.harness = ChatLoop(agent.config.harness, interception.sessions)
            return agent

        agents = Agents(self.env.config, seat)
        try:
            async with asyncio.timeout(self.env.config.timeout.episode):
                await self.env.setup(agents)
                await self.env.run(task, agents)
            async with asyncio.timeout(self.env.config.timeout.finalize):
                await self.env.finalize(task, episode)
        except TimeoutError as error:
            said = "the env's time is over (`timeout.episode`, `timeout.finalize`, or a limit of its own)"
            raise RolloutError("environment_error", said) from error
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

    async def _enter(self) -> tuple[Any, Any]:
        """Return the shared resources for one more episode: the interception server and the tool servers. The first
        episode opens them. Each episode must call `_leave` at its end."""
        loop = asyncio.get_running_loop()
        if self._holder is None or self._holder.done() or self._holder.get_loop() is not loop:
            self._num_users, self._ready, self._released = 0, loop.create_future(), asyncio.Event()
            self._holder = loop.create_task(self._hold(self._ready, self._released))
        assert self._ready is not None
        self._num_users += 1
        try:
            shared: tuple[Any, Any] = await asyncio.shield(self._ready)
            return shared
        except BaseException:
            await self._leave()
            raise

    async def _leave(self) -> None:
        self._num_users -= 1
        holder = self._holder
        if not self._num_users and holder is not None:
            # Cleared before the wait, so that an episode that starts during the wait opens new resources.
            self._holder = None
            self._released.set()
            await asyncio.wait({holder})

    async def _hold(self, ready: "asyncio.Future[Any]", released: asyncio.Event) -> None:
        """Open the shared resources, store them in `ready`, and close them when `released` is set. This method runs in
        its own task, because the task that opens the resources must also close them."""
        try:
            async with self.env.serving():
                self.env._interception.clients[POLICY.model_dump_json()] = self._policy
                # Passed on, because a holder that closes late clears the attributes of `env`.
                ready.set_result((self.env._interception, self.env._shared_tools))
                await released.wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)


def policy_seat(seats: Mapping[str, AgentConfig], name: str) -> str:
    """Return the name of the policy's seat, which is the only seat without an endpoint. Raise UserError if the number
    of such seats is not 1. Also raise UserError if this seat has a token limit, because an environment sees no
    tokens."""
    free = [seat for seat, config in seats.items() if config.client is None]
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


def local_config(config: Any) -> Any:
    """Return the config with two changes. Agents run on this machine unless the config names another runtime, because
    the default of verifiers is a paid service. One server answers all model calls."""
    seats = {
        seat: one.model_copy(update={"runtime": SubprocessConfig()})
        for seat, one in agent_config_fields(config).items()
        if "runtime" not in one.model_fields_set
    }
    return config.model_copy(update={**seats, "interception": InterceptionServerConfig()})
