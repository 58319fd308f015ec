"""Defines and validates the bodies of OpenAI's Responses, with the fields that chat supports."""

from typing import Annotated, Any, Literal

from pydantic import Field

from slimrl_serve.bodies import Draws, Stop, Top
from slimrl_serve.body import Body, Ignored, Items, OnlyFalse, Request, Some
from slimrl_serve.dialects.translation import with_type

LOGPROBS = "message.output_text.logprobs"


class TextPart(Body):
    """A part of a message, or of a function's result."""

    type: Literal["input_text", "output_text", "text"]
    text: str


class MessageItem(Body):
    """A message. `type` may be left out."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | Items[TextPart]


class CallItem(Body):
    """An earlier call by the model."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str


class ResultItem(Body):
    """The result of a call."""

    type: Literal["function_call_output"]
    call_id: str
    output: str | Items[TextPart]


Item = Annotated[MessageItem | CallItem | ResultItem, Field(discriminator="type"), with_type("message")]


class FunctionTool(Body):
    type: Literal["function"]
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionChoice(Body):
    """The one function that must be called."""

    type: Literal["function"]
    name: str = Field(min_length=1)


class TextConfig(Request):
    """The form of the text: `format` is checked in the chat request."""

    format: dict[str, Any] | None = None
    verbosity: Literal["medium"] | None = None


class Reasoning(Request):
    """The setting without reasoning, the only supported one: thoughts are part of the text here."""

    effort: Literal["none"] | None = None
    summary: None = None
    generate_summary: None = None


class ResponseStreamOptions(Request):
    include_obfuscation: Ignored = None


class ResponseBody(Draws):
    """`POST /v1/responses`. `seed`, `stop`, `top_k` and `min_p` are not in OpenAI's API, and are as in chat."""

    model: str | None = None
    input: str | Some[Item]
    instructions: str | None = None
    previous_response_id: str | None = Field(default=None, min_length=1, max_length=128)
    store: bool | None = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    max_output_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    stop: Stop | Annotated[Items[Stop], Field(max_length=128)] | None = None
    top_logprobs: Top | None = None
    include: Items[Literal["message.output_text.logprobs", "reasoning.encrypted_content"]] | None = None
    tools: Items[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | FunctionChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    truncation: Literal["disabled"] | None = None
    background: OnlyFalse | None = None
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = None
    user: Ignored = None
    max_tool_calls: Ignored = None
    service_tier: Ignored = None
    safety_identifier: Ignored = None
    prompt_cache_key: Ignored = None
    prompt_cache_retention: Ignored = None
