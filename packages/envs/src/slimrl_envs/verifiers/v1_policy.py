"""The policy as verifiers 0.4 sees it: an agent whose model calls end in slimrl's agent loop, without HTTP.

`ChatLoop` is a harness in this process, in place of the program that verifiers starts for each rollout. Harnesses that
are programs reach `PolicyClient` through verifiers' own server.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from verifiers.v1 import Agent, ProgramResult, Request, graph
from verifiers.v1.clients import Client, TrainClientConfig
from verifiers.v1.clients.train import serialize_completion, tool_to_wire
from verifiers.v1.dialects.chat import ChatDialect, parse_tools
from verifiers.v1.harnesses.null.harness import NullHarness
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp
from verifiers.v1.interception import InterceptionServer
from verifiers.v1.types import AssistantMessage, Message, Response, SystemMessage, ToolCall, ToolMessage, UserMessage

from slimrl.errors import RolloutError
from slimrl_envs.verifiers.conversation import Ask, message_of, text_of

MODEL = "policy"
# Stands for the policy in configs. It is the kind for training, whose replies verifiers does not stream.
POLICY = TrainClientConfig(base_url="http://policy.invalid/v1", api_key_var="")


class PolicyClient(Client):  # type: ignore[misc]  # verifiers is not there for the type checker
    """The model client of all rollouts: it asks the conversation that the rollout belongs to."""

    def __init__(self) -> None:
        self.asks: dict[str, Ask] = {}

    async def get_response(
        self,
        dialect: Any,
        body: dict[str, Any],
        sampling: Any,
        session_id: str | None = None,
        turn: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The policy's reply. How it is sampled is slimrl's affair."""
        if not isinstance(dialect, ChatDialect):
            raise RolloutError("environment_error", f"the harness speaks {type(dialect).__name__}, and not chat")
        request = turn if turn is not None else dialect.parse_request(body)
        messages = request.prompt if turn is not None else request.messages
        tools = [tool_to_wire(tool) for tool in request.tools or ()]
        reply = await self.asks[session_id or ""]([message_of(message) for message in messages], tools)
        calls = [ToolCall(id=call["id"], **call["function"]) for call in reply.get("tool_calls", ())]
        response = Response(
            id=f"{session_id}/{len(messages)}",
            created=0,
            model=MODEL,
            message=AssistantMessage(content=reply["content"], tool_calls=calls or None),
            finish_reason="tool_calls" if calls else "stop",
        )
        response.raw = serialize_completion(response, MODEL)
        return response


class Interception(InterceptionServer):  # type: ignore[misc]
    """Where the rollouts' model calls arrive: by HTTP if it listens, else by `ChatLoop` alone."""

    def __init__(self, tools: Mapping[str, Any], needs_tunnel: bool) -> None:
        secrets = tuple(tool.state_secret for tool in tools.values() if tool.state_secret)
        super().__init__(requires_tunnel=needs_tunnel, state_service_secrets=secrets)
        self.policy = PolicyClient()
        self.shared_tools = tools
        self.clients[POLICY.model_dump_json()] = self.policy

    @asynccontextmanager
    async def open(self, listens: bool) -> AsyncIterator[None]:
        """Listens inside, if it is to."""
        if not listens:
            yield
            return
        async with self:
            yield


class Seat(Agent):  # type: ignore[misc]
    """An agent of one episode, which lists its finished runs and borrows the taskset's tools. `ask` is set on the
    policy's."""

    def __init__(
        self, config: Any, name: str, interception: Interception, task_class: type, completed: list[Any]
    ) -> None:
        super().__init__(config, interception=interception)
        self.ask: Ask | None = None
        self._name = name
        self._policy = interception.policy
        self._tools, self._task_class = interception.shared_tools, task_class
        self._completed = completed
        self._asking: list[str] = []

    async def run(self, task: Any, **options: Any) -> Any:
        """A rollout of the task."""
        trace = await super().run(task, **self._options(task, options))
        self._completed.append(trace)
        return trace

    @asynccontextmanager
    async def interaction(self, task: Any, **options: Any) -> AsyncIterator[Any]:
        """A rollout of the task whose user is the caller."""
        async with super().interaction(task, **self._options(task, options)) as interaction:
            yield interaction
        self._completed.append(interaction.trace)

    def forget(self) -> None:
        """Refuse further requests of the episode."""
        for trace_id in self._asking:
            self._policy.asks.pop(trace_id, None)

    def _options(self, task: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        watch = given.get("on_trace")

        def begin(trace: Any) -> None:
            trace.agent.name = self._name
            trace.agent.trainable = self.trainable
            if self.ask is not None:
                self._policy.asks[trace.id] = self.ask
                self._asking.append(trace.id)
            if watch is not None:
                watch(trace)

        tools = self._tools if isinstance(task, self._task_class) else {}
        return {"tools": tools, **given, "on_trace": begin}


class ChatLoop(NullHarness):  # type: ignore[misc]
    """The chat loop of verifiers' `null` harness: ask, make the calls, until a reply makes none."""

    def __init__(self, config: Any, interception: Interception) -> None:
        super().__init__(config)
        self._interception = interception

    async def setup(self, runtime: Any) -> None:
        """Nothing has to be installed."""

    async def launch(self, *given: Any, **options: Any) -> Any:
        """Plays one segment: from the prompt to a reply without calls, or until a stop."""
        *_, secret, mcp_urls, data = given  # before them: context, trace, runtime and endpoint
        system, prompt = self.resolve_prompt(data)
        first: list[Message] = [] if system is None else [SystemMessage(content=system)]
        first += [UserMessage(content=prompt)] if isinstance(prompt, str) else list(prompt or ())
        session = self._interception.sessions[secret]
        async with AsyncExitStack() as stack:
            tools = await ToolServers.connect(mcp_urls, self.config.tool_timeout, stack)
            messages = first
            while (reply := await exchange(session, messages, tools.schemas)) and reply.tool_calls:
                messages = [*messages, reply, *[await self._result(session, tools, call) for call in reply.tool_calls]]
        return ProgramResult(0, "", "")

    async def _result(self, session: Any, tools: "ToolServers", call: Any) -> Any:
        arguments = json_object(call.arguments)
        if session.request_interceptors or session.request_stops:
            verdict = await session.decide_tool(call.id, call.name, arguments)
            if verdict["action"] != "allow":
                refused = {"role": "tool", "tool_call_id": call.id, "content": verdict.get("reason", "")}
                return ToolMessage.model_validate(verdict.get("message", refused))
        content = await tools.call(call.name, arguments)
        return ToolMessage(tool_call_id=call.id, content=content, name=call.name)


class ToolServers:
    """The tool servers of a rollout, and the schemas of their tools."""

    def __init__(self, schemas: Sequence[Any], dispatch: Mapping[str, Any], servers: Mapping[str, Any]) -> None:
        self.schemas = parse_tools(list(schemas))
        self._dispatch, self._servers = dispatch, servers

    @classmethod
    async def connect(cls, urls: Mapping[str, str], timeout_s: float, stack: AsyncExitStack) -> "ToolServers":
        """Connects to the servers, which the stack closes."""
        if not urls:
            return cls((), {}, {})
        config = {"mcpServers": {name: {"url": url, "timeout": timeout_s} for name, url in urls.items()}}
        return cls(*await connect_mcp(config, stack, set()))

    async def call(self, name: str, arguments: object) -> str:
        """The result of a call. A mistake of the policy's is answered by a text."""
        if name not in self._dispatch:
            return f"error: unknown tool {name!r:.100}"
        if not isinstance(arguments, dict):
            return "error: tool arguments must be a JSON object; resend as an object"
        return text_of(await call_mcp(self._servers, self._dispatch, name, arguments))


async def exchange(session: Any, messages: list[Any], tools: Any) -> Any:
    """One model call of a rollout, with the task's stops and hooks as verifiers' server has them. None ends it."""
    trace = session.trace
    if session.stopped or await session.refused() is not None:
        return None
    request, records, stopped = await session.rewrite_request(Request(messages=messages, tools=tools))
    trace.request_rewrites.extend(records)
    turn = graph.prepare_turn(trace, request.messages, request.tools)
    if stopped is not None:
        turn.commit_prompt()
        trace.stop(stopped)
        return None
    if session.on_turn_input is not None:
        accept, session.on_turn_input = session.on_turn_input, None
        accept()
    dialect = ChatDialect()
    response = await session.client.get_response(dialect, {}, session.ctx.sampling, session_id=trace.id, turn=turn)
    response, records, stopped = await session.rewrite_response(response)
    node = turn.commit(response)
    session.consume_prepared(turn.tail)
    trace.response_rewrites.extend(records)
    stopped = stopped or await session.gate_tool_calls(node)
    if stopped is not None:
        trace.stop(stopped)
        return None
    return response.message


def json_object(text: str) -> object:
    """The arguments of a call, or their text where they are not JSON. A server does not read nan or infinity, and would
    be asked again and again."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return text
    return value
