"""The package instructor, which is for structured output alone."""

import instructor
from openai import OpenAI
from outcome import ADDRESS, MESSAGES, MODEL, report
from pydantic import BaseModel


class Sum(BaseModel):
    sum: int


def extract(mode):
    client = instructor.from_openai(OpenAI(base_url=f"{ADDRESS}/v1", api_key="none", max_retries=0), mode=mode)
    asked = {"model": MODEL, "messages": MESSAGES, "max_tokens": 100, "max_retries": 0}
    return client.chat.completions.create(**asked, response_model=Sum)


report(
    {
        "structured output, by a tool": lambda: extract(instructor.Mode.TOOLS),
        "structured output, json_object": lambda: extract(instructor.Mode.JSON),
        "structured output, json_schema": lambda: extract(instructor.Mode.JSON_SCHEMA),
    }
)
