"""The package inspect_ai, by two of its providers."""

import asyncio

from inspect_ai.model import GenerateConfig, ResponseSchema, get_model
from inspect_ai.tool import ToolInfo, ToolParams
from inspect_ai.util import json_schema
from outcome import ADDRESS, FUNCTION, MODEL, QUESTION, report
from pydantic import BaseModel

URLS = {"openai": f"{ADDRESS}/v1", "openai-api/local": f"{ADDRESS}/v1"}
PROPERTIES = {name: {"type": "integer"} for name in FUNCTION["parameters"]["properties"]}
ADD = ToolInfo(
    name="add", description=FUNCTION["description"], parameters=ToolParams(properties=PROPERTIES, required=["a", "b"])
)


class Sum(BaseModel):
    sum: int


def generate(provider, tools=(), more=None, **config):
    model = get_model(f"{provider}/{MODEL}", base_url=URLS[provider], api_key="none", memoize=False, **(more or {}))
    settings = GenerateConfig(max_tokens=100, max_retries=0, **config)
    output = asyncio.run(model.generate(QUESTION, tools=list(tools), config=settings))
    calls = output.message.tool_calls or []
    return [call.arguments for call in calls] or output.completion


RESPONSES = {"responses_api": True}
SCHEMA = ResponseSchema(name="sum", json_schema=json_schema(Sum))
report(
    {
        "chat": lambda: generate("openai-api/local", temperature=0),
        "chat, tools": lambda: generate("openai-api/local", [ADD], temperature=0),
        "chat, logprobs": lambda: generate("openai-api/local", logprobs=True, top_logprobs=2),
        "chat, seed, stop": lambda: generate("openai-api/local", seed=1, stop_seqs=["42"]),
        "structured output, chat": lambda: generate("openai-api/local", response_schema=SCHEMA),
        "responses": lambda: generate("openai", more=RESPONSES, temperature=0),
        "responses, tools": lambda: generate("openai", [ADD], RESPONSES, temperature=0),
        "structured output, responses": lambda: generate("openai", more=RESPONSES, response_schema=SCHEMA),
    }
)
