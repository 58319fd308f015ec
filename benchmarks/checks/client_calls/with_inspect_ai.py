"""The package inspect_ai."""

import asyncio

from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.tool import ToolInfo, ToolParams
from outcome import ADDRESS, FUNCTION, MODEL, QUESTION, report

PROPERTIES = {name: {"type": "integer"} for name in FUNCTION["parameters"]["properties"]}
ADD = ToolInfo(
    name="add", description=FUNCTION["description"], parameters=ToolParams(properties=PROPERTIES, required=["a", "b"])
)


def generate(tools=(), **config):
    model = get_model(f"openai-api/local/{MODEL}", base_url=f"{ADDRESS}/v1", api_key="none", memoize=False)
    settings = GenerateConfig(max_tokens=100, max_retries=0, **config)
    output = asyncio.run(model.generate(QUESTION, tools=list(tools), config=settings))
    calls = output.message.tool_calls or []
    return [call.arguments for call in calls] or output.completion


report(
    {
        "chat": lambda: generate(temperature=0),
        "chat, tools": lambda: generate([ADD], temperature=0),
        "chat, logprobs": lambda: generate(logprobs=True, top_logprobs=2),
        "chat, seed, stop": lambda: generate(seed=1, stop_seqs=["42"]),
    }
)
