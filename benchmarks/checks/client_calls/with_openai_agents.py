"""The package openai-agents."""

import asyncio

from agents import (
    Agent,
    FunctionTool,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from outcome import ADDRESS, FUNCTION, MODEL, QUESTION, report

set_tracing_disabled(True)


async def add(_context, _arguments):
    return "42"


ADD = FunctionTool(FUNCTION["name"], FUNCTION["description"], FUNCTION["parameters"], add, strict_json_schema=False)


def agent(**settings):
    client = AsyncOpenAI(base_url=f"{ADDRESS}/v1", api_key="none", max_retries=0)
    model = OpenAIChatCompletionsModel(model=MODEL, openai_client=client)
    return Agent("assistant", model=model, model_settings=ModelSettings(temperature=0), **settings)


def run(**settings):
    return Runner.run_sync(agent(**settings), QUESTION, max_turns=3).final_output


async def streamed():
    result = Runner.run_streamed(agent(), QUESTION)
    async for _ in result.stream_events():
        pass
    return result.final_output


report(
    {
        "chat": lambda: run(),
        "chat, stream": lambda: asyncio.run(streamed()),
        "chat, tools": lambda: run(tools=[ADD]),
    }
)
