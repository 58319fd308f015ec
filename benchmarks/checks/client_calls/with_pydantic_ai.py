"""The package pydantic-ai."""

import asyncio

from outcome import ADDRESS, FUNCTION, MODEL, QUESTION, report
from pydantic_ai import Agent, Tool
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


def add(a: int, b: int) -> int:
    return a + b


ADD = Tool.from_schema(add, FUNCTION["name"], FUNCTION["description"], FUNCTION["parameters"])


def agent(**settings):
    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=f"{ADDRESS}/v1", api_key="none"))
    return Agent(model, model_settings={"temperature": 0}, retries=0, **settings)


async def streamed():
    async with agent().run_stream(QUESTION) as run:
        return await run.get_output()


report(
    {
        "chat": lambda: agent().run_sync(QUESTION).output,
        "chat, stream": lambda: asyncio.run(streamed()),
        "chat, tools": lambda: agent(tools=[ADD]).run_sync(QUESTION).output,
    }
)
