"""Defines and validates the bodies of all routes, with the bounds that `/openapi.json` documents.

Types are strict (the text "3" is not accepted as a number). An unknown field of a request is refused by its name, since
it may be meant to constrain the reply; within messages and tools unknown fields are ignored. Some fields of OpenAI and
vLLM are not supported here: they only accept the value that switches them off. Fields that do not change the reply are
listed with the type `Ignored`.
"""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, WithJsonSchema

from slimrl.models.adapter import MAX_ALPHA, MAX_RANK
from slimrl_serve.body import Body, Ignored, Items, OnlyFalse, OnlyTrue, Request, Some
from slimrl_serve.format_bodies import Guided, ResponseFormat, ToolChoice

MAX_CHOICES = 128
MAX_TOP = 20
MAX_BIASES, MAX_BIAS = 1024, 100
INT64 = 2**63

TokenId = Annotated[int, Field(ge=0, lt=2**31)]
TokenIds = Some[TokenId]
Stop = Annotated[str, Field(min_length=1, max_length=1024)]
One = Annotated[float, Field(ge=1, le=1)]
Top = Annotated[int, Field(ge=0, le=MAX_TOP)]
Penalty = Annotated[float, Field(ge=-2, le=2)]

Nothing = Annotated[list[Any], Field(max_length=0)]


def _in_bounds(biases: dict[str, Any]) -> dict[str, Any]:
    # Only the first bad number is reported, as with `Items`.
    for number in biases.values():
        if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= MAX_BIAS:
            raise ValueError(f"must have numbers from -{MAX_BIAS} to {MAX_BIAS}")
    return biases


_BIASES = {
    "type": "object",
    "additionalProperties": {"type": "number", "minimum": -MAX_BIAS, "maximum": MAX_BIAS},
    "maxProperties": MAX_BIASES,
}
Biases = Annotated[dict[str, Any], Field(max_length=MAX_BIASES), AfterValidator(_in_bounds), WithJsonSchema(_BIASES)]


class StreamOptions(Request):
    include_usage: bool | None = None
    include_obfuscation: Ignored = None


class Draws(Request):
    """The fields that decide how a token is drawn, in every form of a request."""

    temperature: float | None = Field(default=None, ge=0, le=100)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, lt=2**31)
    min_p: float | None = Field(default=None, ge=0, lt=1)
    seed: int | None = Field(default=None, ge=-INT64, lt=INT64)


class Sampling(Guided, Draws):
    """The sampling fields of all routes that sample."""

    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    stop: Stop | Annotated[Items[Stop], Field(max_length=128)] | None = None
    stop_token_ids: Annotated[Items[TokenId], Field(max_length=128)] | None = None
    min_tokens: int | None = Field(default=None, ge=0, lt=2**31)
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    prompt_logprobs: Top | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: float | None = Field(default=None, ge=0.01, le=100)
    length_penalty: One | None = None
    use_beam_search: OnlyFalse | None = None
    logit_bias: Biases | None = None
    bad_words: Nothing | None = None
    allowed_token_ids: Nothing | None = None
    spaces_between_special_tokens: Ignored = None


class Generation(Sampling):
    """The fields that chat and completions share."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    user: Ignored = None
    metadata: Ignored = None
    store: Ignored = None
    service_tier: Ignored = None
    safety_identifier: Ignored = None
    prompt_cache_key: Ignored = None
    prompt_cache_retention: Ignored = None
    prediction: Ignored = None
    priority: Ignored = None
    request_id: Ignored = None
    cache_salt: Ignored = None


class CompletionBody(Generation):
    """`POST /v1/completions`."""

    prompt: str | TokenIds | Some[str] | Some[TokenIds]
    max_tokens: int | None = Field(default=None, ge=0, lt=2**31)
    logprobs: Top | None = None
    echo: bool | None = None
    best_of: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    add_special_tokens: bool | None = None
    suffix: None = None
    response_format: ResponseFormat | None = None


class TextPart(Body):
    type: Literal["text"]
    text: str


class CalledFunction(Body):
    """A call by a model; its arguments may be any JSON, because a model may have written anything."""

    name: str
    arguments: Any = "{}"


class ToolCall(Body):
    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(Body):
    """One message of a conversation. Only an assistant's message may lack `content`."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Items[TextPart] | None = None
    name: str | None = None
    tool_calls: Items[ToolCall] | None = None
    tool_call_id: str | None = None


class FunctionSpec(Body):
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Body):
    type: Literal["function"]
    function: FunctionSpec


class Rendering(Request):
    """The fields that control how the chat template renders messages."""

    tools: Items[Tool] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class Conversation(Rendering):
    """A conversation to render."""

    messages: Some[ChatMessage]


class ChatBody(Generation, Conversation):
    """`POST /v1/chat/completions`."""

    max_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    max_completion_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    logprobs: bool | None = None
    top_logprobs: Top | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None


class ChatTokensBody(ChatBody):
    """`POST /v1/chat/completions/tokens`: as chat, but the prompt is `tokens`; `messages` are not rendered."""

    tokens: TokenIds


class TokenizeBody(Rendering):
    """`POST /tokenize`: a prompt, or messages. lm-eval sends messages as `prompt`."""

    model: str | None = None
    prompt: str | Some[ChatMessage] | None = None
    messages: Some[ChatMessage] | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(Request):
    """`POST /detokenize`."""

    model: str | None = None
    tokens: Items[TokenId]


class GenerateSampling(Sampling):
    max_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    logprobs: Top | None = None
    flat_logprobs: OnlyFalse | None = None
    detokenize: Ignored = None
    output_kind: Ignored = None
    skip_clone: Ignored = None
    skip_reading_prefix_cache: Ignored = None


class GenerateBody(Request):
    """`POST /inference/v1/generate`: token ids in, token ids out."""

    model: str | None = None
    request_id: str | None = Field(default=None, max_length=1024)
    token_ids: TokenIds
    sampling_params: GenerateSampling = GenerateSampling()
    stream: OnlyFalse | None = None
    priority: Ignored = None
    cache_salt: Ignored = None


class UpdateBody(Request):
    """`POST /update_weights`: a directory of safetensors in Hugging Face format, or of an adapter alone in PEFT's
    format, and the version of its weights."""

    weight_dir: str = Field(min_length=1)
    version: int = Field(ge=0, lt=INT64)


def _keys(value: Any) -> Collection[Any]:
    """Return the fields that distinguish several kinds of objects. Their tags are in brackets, so that `explain` in
    `errors.py` skips them."""
    return value if isinstance(value, Mapping) else ()


class DirectoryInfo(Request):
    """An update from a directory of safetensors in Hugging Face format, or of an adapter alone in PEFT's format."""

    weight_dir: str = Field(min_length=1)


class AdapterInfo(Request):
    """The rank of an adapter's pairs, the scale of their products, and the fingerprint of the base weights."""

    rank: int = Field(ge=1, le=MAX_RANK)
    scale: float = Field(gt=0, lt=MAX_ALPHA)
    base: str = Field(default="", max_length=64)


class BroadcastInfo(Request):
    """An update, or a part of one, by a broadcast: the tensors that the trainer sends, in this order. With an `adapter`
    they are its pairs, by PEFT's names, for the server's initial weights."""

    names: Items[str]
    dtype_names: Items[str]
    shapes: Items[Annotated[Items[TokenId], Field(max_length=8)]]
    adapter: AdapterInfo | None = None


class TransferBody(Request):
    """`POST /update_weights` between `/start_weight_update` and `/finish_weight_update`."""

    update_info: Annotated[
        Annotated[DirectoryInfo, Tag("(directory)")] | Annotated[BroadcastInfo, Tag("(broadcast)")],
        Discriminator(lambda info: "(broadcast)" if "names" in _keys(info) else "(directory)"),
    ]


# A complete update in one call, or one of several calls.
AnyUpdateBody = Annotated[
    Annotated[UpdateBody, Tag("(whole)")] | Annotated[TransferBody, Tag("(part)")],
    Discriminator(lambda body: "(part)" if "update_info" in _keys(body) else "(whole)"),
]


class JoinInfo(Request):
    """The process group of a broadcast. The trainer has rank 0 and listens at the address."""

    master_address: str = Field(min_length=1, max_length=256)
    master_port: int = Field(ge=1, le=65535)
    rank_offset: int = Field(ge=1, lt=2**16)
    world_size: int = Field(ge=2, le=2**16)
    packed: OnlyFalse | None = None
    packed_buffer_size_bytes: Ignored = None
    packed_num_buffers: Ignored = None


class NoInfo(Request):
    """Empty: updates are read from directories."""


class InitTransferBody(Request):
    """`POST /init_weight_transfer_engine`."""

    init_info: Annotated[
        Annotated[JoinInfo, Tag("(join)")] | Annotated[NoInfo, Tag("(nothing)")],
        Discriminator(lambda info: "(join)" if _keys(info) else "(nothing)"),
    ]


Version = Annotated[str, Field(pattern=r"^\d{1,18}$")]


class FinishBody(Request):
    """`POST /finish_weight_update`. A version is a number here, as in tokens; without one it does not change."""

    weight_version: Version | None = None


class NewVersionBody(Request):
    """`POST /update_weight_version`."""

    new_version: Version


class CheckBody(Request):
    """`POST /weight_checker`: compute the SHA-256 of every tensor, compare with a `baseline` of such digests, or set
    all weights to zero."""

    action: Literal["checksum", "reset", "compare"]
    baseline: dict[str, str] | None = None


class AbortBody(Request):
    """`POST /inference/v1/abort_requests`: the values of `request_id` or `id` in replies."""

    request_ids: Items[str]


class LoadAdapterBody(Request):
    """`POST /load_lora_adapter`: a directory in PEFT's format. Without `version` the next number is used."""

    lora_name: str = Field(min_length=1, max_length=1024)
    lora_path: str = Field(min_length=1)
    load_inplace: OnlyTrue | None = None
    version: int | None = Field(default=None, ge=0, lt=INT64)


class UnloadAdapterBody(Request):
    """`POST /unload_lora_adapter`."""

    lora_name: str = Field(min_length=1, max_length=1024)
    lora_int_id: Ignored = None
    version: int | None = Field(default=None, ge=0, lt=INT64)
