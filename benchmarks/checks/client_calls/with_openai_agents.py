"""The package openai-agents."""

import asyncio

from agents import (
    Agent,
    FunctionTool,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from outcome import ADDRESS, FUNCTION, MODEL, QUESTION, report
from pydantic import BaseModel

set_tracing_disabled(True)


class Sum(BaseModel):
    sum: int


async def add(_context, _arguments):
    return "42"


ADD = FunctionTool(FUNCTION["name"], FUNCTION["description"], FUNCTION["parameters"], add, strict_json_schema=False)


def agent(kind, **settings):
    client = AsyncOpenAI(base_url=f"{ADDRESS}/v1", api_key="none", max_retries=0)
    model = kind(model=MODEL, openai_client=client)
    return Agent("assistant", model=model, model_settings=ModelSettings(temperature=0), **settings)


def run(kind, **settings):
    return Runner.run_sync(agent(kind, **settings), QUESTION, max_turns=3).final_output


async def streamed(kind):
    result = Runner.run_streamed(agent(kind), QUESTION)
    async for _ in result.stream_events():
        pass
    return result.final_output


report(
    {
        "chat": lambda: run(OpenAIChatCompletionsModel),
        "chat, stream": lambda: asyncio.run(streamed(OpenAIChatCompletionsModel)),
        "chat, tools": lambda: run(OpenAIChatCompletionsModel, tools=[ADD]),
        "structured output, chat": lambda: run(OpenAIChatCompletionsModel, output_type=Sum),
        "responses": lambda: run(OpenAIResponsesModel),
        "responses, stream": lambda: asyncio.run(streamed(OpenAIResponsesModel)),
        "responses, tools": lambda: run(OpenAIResponsesModel, tools=[ADD]),
        "structured output, responses": lambda: run(OpenAIResponsesModel, output_type=Sum),
    }
)
