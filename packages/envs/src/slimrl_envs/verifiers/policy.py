"""The policy as an agent of verifiers 0.4. slimrl's agent loop answers the agent's model calls, without HTTP.

`ChatLoop` is a harness in this process, in place of the program that verifiers would start for each rollout. Other
harnesses are programs, and reach `PolicyClient` through verifiers' own server.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from verifiers.v1 import ProgramResult, Request, graph
from verifiers.v1.clients import Client, TrainClientConfig
from verifiers.v1.clients.train import serialize_completion, tool_to_wire
from verifiers.v1.dialects.chat import ChatDialect, message_to_wire, parse_tools
from verifiers.v1.harnesses.null.harness import NullHarness
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp
from verifiers.v1.types import AssistantMessage, Message, Response, SystemMessage, ToolCall, ToolMessage, UserMessage

from slimrl.errors import RolloutError
from slimrl_envs.verifiers.conversation import Ask, parse_arguments, text_of

MODEL = "policy"
# Represents the policy in configs. It is a client for training, because verifiers does not stream replies to training
# clients.
POLICY = TrainClientConfig(base_url="http://policy.invalid/v1", api_key_var="")


class PolicyClient(Client):  # type: ignore[misc]  # verifiers is not there for the type checker
    """The model client of all rollouts. It passes each request to the conversation of its rollout."""

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
        """Return the policy's reply. `sampling` is ignored, because slimrl decides how to sample."""
        if not isinstance(dialect, ChatDialect):
            raise RolloutError("environment_error", f"the harness speaks {type(dialect).__name__}, and not chat")
        request = turn if turn is not None else dialect.parse_request(body)
        messages = request.prompt if turn is not None else request.messages
        wired: list[Any] = [{**message_to_wire(message), "content": text_of(message.content)} for message in messages]
        reply = await self.asks[session_id or ""](wired, [tool_to_wire(tool) for tool in request.tools or ()])
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


class ChatLoop(NullHarness):  # type: ignore[misc]
    """The chat loop of verifiers' `null` harness: ask the policy and make the calls in its reply, until a reply has no
    calls."""

    def __init__(self, config: Any, sessions: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._sessions = sessions

    async def setup(self, runtime: Any) -> None:
        """Do nothing: this harness needs no installation."""

    async def launch(self, *given: Any, **options: Any) -> Any:
        """Play one segment: from the prompt until a reply has no calls or the rollout must stop."""
        *_, secret, mcp_urls, data = given  # before them: context, trace, runtime and endpoint
        system, prompt = self.resolve_prompt(data)
        messages: list[Message] = [] if system is None else [SystemMessage(content=system)]
        messages += [UserMessage(content=prompt)] if isinstance(prompt, str) else list(prompt or ())
        session = self._sessions[secret]
        urls = {name: {"url": url, "timeout": self.config.tool_timeout} for name, url in mcp_urls.items()}
        async with AsyncExitStack() as stack:  # it closes the connections
            schemas, dispatch, servers = await connect_mcp({"mcpServers": urls}, stack)
            tools = parse_tools(schemas)

            async def call_tool(name: str, arguments: object) -> str:
                """Return the result of a call. For a mistake of the policy, return a text about it."""
                if name not in dispatch:
                    return f"error: unknown tool {name!r:.100}"
                if not isinstance(arguments, dict):
                    return "error: tool arguments must be a JSON object; resend as an object"
                return text_of(await call_mcp(servers, dispatch, name, arguments))

            while (reply := await exchange(session, messages, tools)) and reply.tool_calls:
                results = [await call_if_allowed(session, call, call_tool) for call in reply.tool_calls]
                messages = [*messages, reply, *results]
        return ProgramResult(0, "", "")


async def call_if_allowed(session: Any, call: Any, call_tool: Any) -> Any:
    """Return the result of a call. If the task's hooks do not allow the call, return their message instead."""
    # A server cannot read nan or infinity, and the request would be sent again and again.
    arguments = parse_arguments(call.arguments)
    if session.request_interceptors or session.request_stops:
        verdict = await session.decide_tool(call.id, call.name, arguments)
        if verdict["action"] != "allow":
            refused = {"role": "tool", "tool_call_id": call.id, "content": verdict.get("reason", "")}
            return ToolMessage.model_validate(verdict.get("message", refused))
    return ToolMessage(tool_call_id=call.id, content=await call_tool(call.name, arguments), name=call.name)


async def exchange(session: Any, messages: list[Any], tools: Any) -> Any:
    """Make one model call of a rollout, with the task's stop conditions and hooks, as the server of verifiers does.
    Return None if the rollout must stop."""
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
