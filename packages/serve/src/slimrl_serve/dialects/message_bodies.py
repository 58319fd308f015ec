"""Defines and validates the bodies of Messages, with the fields that chat supports."""

from typing import Annotated, Any, Literal

from pydantic import Field

from slimrl_serve.bodies import Draws, Nothing, Stop
from slimrl_serve.body import Body, Ignored, Items, Request, Some


class TextBlock(Body):
    type: Literal["text"]
    text: str


class ToolUseBlock(Body):
    """An earlier call by the model."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class ToolResultBlock(Body):
    """The result of a call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str | Items[TextBlock] | None = None


Block = Annotated[TextBlock | ToolUseBlock | ToolResultBlock, Field(discriminator="type")]


class InputMessage(Body):
    role: Literal["user", "assistant"]
    content: str | Items[Block]


class InputTool(Body):
    """A tool that the client runs, the only supported kind."""

    type: Literal["custom"] | None = None
    name: str = Field(min_length=1)
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None


class ToolChoice(Request):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputConfig(Request):
    """The form of the text: `format` is checked in the chat request."""

    format: dict[str, Any] | None = None


class NoThinking(Body):
    """The setting without thinking, the only supported one: thoughts are part of the text here."""

    type: Literal["disabled"]


class CountBody(Request):
    """`POST /v1/messages/count_tokens`."""

    model: str | None = None
    messages: Some[InputMessage]
    system: str | Items[TextBlock] | None = None
    tools: Items[InputTool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: NoThinking | None = None
    output_config: OutputConfig | None = None
    mcp_servers: Nothing | None = None
    cache_control: Ignored = None


class MessagesBody(CountBody, Draws):
    """`POST /v1/messages`. `seed` and `min_p` are as in chat."""

    max_tokens: int = Field(ge=1, lt=2**31)
    stop_sequences: Annotated[Items[Stop], Field(max_length=128)] | None = None
    stream: bool | None = None
    metadata: Ignored = None
    service_tier: Ignored = None
    inference_geo: Ignored = None
