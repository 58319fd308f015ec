"""Formats, forced calls and penalties through the real server, with a model whose tokens have no sense."""

import asyncio
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import jsonschema
import pytest
from pydantic import BaseModel

from slimrl_serve import grammar_trial
from slimrl_serve.bodies import CompletionBody
from slimrl_serve.command import InferenceServer
from slimrl_serve.errors import ApiError
from slimrl_serve.formats import Formats, source_of

pytest.importorskip("llguidance", reason="the package llguidance is not installed")

CHAT = "/v1/chat/completions"
OF_TOKENS = f"{CHAT}/tokens"  # the tokens of tools written out would not fit this model
USER = [{"role": "user", "content": "hi"}]
TRIP = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 14}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
LETTER = {"regex": "a"}
COUNT = {"type": "object", "properties": {"by": {"enum": [1, 2]}}, "required": ["by"], "additionalProperties": False}


def tool(name: str, parameters: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    function = {"name": name, **({} if parameters is None else {"parameters": parameters}), **more}
    return {"type": "function", "function": function}


TOOLS = [tool("plan", TRIP), tool("count", COUNT), tool("stop", None)]


def ask(http: httpx.Client, **fields: Any) -> dict[str, Any]:
    reply = http.post(OF_TOKENS, json={"messages": USER, "tokens": [5], "seed": 3, **fields})
    assert reply.status_code == 200, reply.text
    choice: dict[str, Any] = reply.json()["choices"][0]
    return choice


def refusal(http: httpx.Client, **fields: Any) -> str:
    reply = http.post(OF_TOKENS, json={"messages": USER, "tokens": [5], **fields})
    assert reply.status_code == 400, reply.text
    message: str = reply.json()["error"]["message"]
    assert "\n" not in message
    return message


def form(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **more}}


NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}, "required": ["next"]}


BOMB = {"allOf": [{"type": "string", "pattern": f".*[ab]{{{num}}}.*a.*"} for num in range(1, 20)]}
MULTIPLE = {"type": "integer", "multipleOf": 9999991}
ESCAPED = json.dumps({"grammars": [{"json_schema": MULTIPLE}]}).replace("multipleOf", "mult\\u0069pleOf")


@pytest.mark.parametrize(
    ("fields", "is_costly"),
    [
        pytest.param({"json": BOMB}, True, id="patterns"),
        pytest.param({"json": MULTIPLE}, True, id="multiple"),
        pytest.param({"grammar": ESCAPED}, True, id="escaped"),
        pytest.param({"json": {"properties": {f"p{num}": {} for num in range(8000)}}}, True, id="properties"),
        pytest.param({"regex": r"(\w?a*)" * 4000}, True, id="regex"),
        pytest.param({"choice": ["é", "no"]}, False, id="choice"),
    ],
)
def test_a_grammar_that_may_take_long_is_tried_in_a_process(fields: dict[str, Any], is_costly: bool) -> None:
    body = CompletionBody.model_validate({"prompt": "Hi", "structured_outputs": fields})
    assert grammar_trial.is_costly(source_of(body, False)[1]) == is_costly


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{"json": BOMB}, {"json": MULTIPLE}, {"grammar": ESCAPED}], ids=str)
def test_a_grammar_that_takes_too_long_to_compile_holds_up_nobody_else(
    http: httpx.Client, fields: dict[str, Any]
) -> None:
    began = time.monotonic()
    with ThreadPoolExecutor() as pool:
        bomb = pool.submit(refusal, http, structured_outputs=fields)
        time.sleep(0.5)
        ask(http, structured_outputs={"choice": ["a"]}, max_tokens=4)
        assert not bomb.done() and time.monotonic() - began < 5
        assert "it takes longer than 5 s to compile; make it simpler" in bomb.result()


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": form(TRIP, strict=True)},
        {"response_format": form(TRIP)},
        {"structured_outputs": {"json": TRIP}},
        {"structured_outputs": {"json": json.dumps(TRIP)}},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "sampling",
    [
        {},
        *(
            pytest.param(more, marks=pytest.mark.slow)
            for more in ({"temperature": 0}, {"top_p": 0.9, "temperature": 2})
        ),
    ],
    ids=str,
)
def test_a_schema_is_obeyed(http: httpx.Client, fields: dict[str, Any], sampling: dict[str, Any]) -> None:
    choice = ask(http, **fields, **sampling)
    jsonschema.validate(json.loads(choice["message"]["content"]), TRIP)
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("wanted", "pattern"),
    [
        ({"choice": ["yes", "no"]}, "yes|no"),
        ({"choice": ['"/\\é']}, re.escape('"/\\é')),
        ({"regex": "[0-9]{3}-[ab]"}, "[0-9]{3}-[ab]"),
        ({"grammar": 'root ::= "x" ("1" | "2")'}, "x1|x2"),
    ],
    ids=str,
)
def test_choices_patterns_and_grammars_are_obeyed_on_every_route(
    http: httpx.Client, wanted: dict[str, Any], pattern: str
) -> None:
    assert re.fullmatch(pattern, ask(http, structured_outputs=wanted)["message"]["content"])
    sampling = {"structured_outputs": wanted, "max_tokens": 20}
    for route, body in (
        ("/v1/completions", {"prompt": "a", **sampling}),
        ("/inference/v1/generate", {"token_ids": [5], "sampling_params": sampling}),
    ):
        reply = http.post(route, json=body)
        assert reply.status_code == 200 and reply.json()["choices"][0]["finish_reason"] == "stop", reply.text


def test_an_object_begins_and_a_format_is_cut_off_by_its_length(http: httpx.Client) -> None:
    started = ask(http, response_format={"type": "json_object"}, max_tokens=4)
    assert started["message"]["content"].startswith("{")
    assert ask(http, structured_outputs={"regex": "a{50}"}, max_tokens=3)["finish_reason"] == "length"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_calls_are_forced(http: httpx.Client, seed: int) -> None:
    required = ask(http, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, seed=seed)
    (call,) = required["message"]["tool_calls"]
    schemas = {"plan": TRIP, "count": COUNT, "stop": {"const": {}}}
    jsonschema.validate(json.loads(call["function"]["arguments"]), schemas[call["function"]["name"]])
    assert required["finish_reason"] == "tool_calls" and required["message"]["content"] is None
    named = {"type": "function", "function": {"name": "count"}}
    (call,) = ask(http, tools=TOOLS, tool_choice=named, seed=seed)["message"]["tool_calls"]
    assert call["function"]["name"] == "count"
    jsonschema.validate(json.loads(call["function"]["arguments"]), COUNT)


def test_several_calls_and_a_stream_of_them(http: httpx.Client) -> None:
    body = {"messages": USER, "tokens": [5], "tools": TOOLS[1:], "tool_choice": "required", "stream": True, "seed": 1}
    names = []
    with http.stream("POST", OF_TOKENS, json={**body, "max_tokens": 300}) as reply:
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                for call in json.loads(line[6:])["choices"][0]["delta"].get("tool_calls", []):
                    names.append(call["function"]["name"])
    assert names and set(names) <= {"count", "stop"}


def test_behind_the_tag_of_a_strict_tool_only_its_call_can_follow(http: httpx.Client) -> None:
    """A text before it is free."""
    strict = [tool("count", COUNT, strict=True)]
    text = ask(http, tools=strict, max_tokens=20)["message"]
    assert text.get("tool_calls") is None
    either = ask(http, tools=strict, response_format=form(TRIP), parallel_tool_calls=False)["message"]
    if calls := either.get("tool_calls"):
        jsonschema.validate(json.loads(calls[0]["function"]["arguments"]), COUNT)
    else:
        jsonschema.validate(json.loads(either["content"]), TRIP)


ODD = {"type": "object", "properties": {"a": {"not": {"type": "string"}}}}


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"response_format": form(ODD)}, 'response_format cannot be obeyed: Unimplemented keys: ["not"]'),
        *(
            ({"structured_outputs": given}, "structured_outputs cannot be obeyed")
            for given in (
                *({"json": schema} for schema in ({"type": "wat"}, {"$ref": "http://example.org/schema.json"})),
                *({"regex": pattern} for pattern in ("(?=a)b", "(")),
                *({"grammar": source} for source in ("start: nothing", "root ::= (", "{}", "{")),
            )
        ),
        ({"response_format": {"type": "json_schema"}}, "needs its json_schema"),
        ({"tool_choice": "required"}, "no tools"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "nope"}}}, "'nope'"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "both say"),
        ({"structured_outputs": LETTER, "tools": TOOLS, "tool_choice": "required"}, "both say"),
        ({"structured_outputs": LETTER, "ignore_eos": True}, "ignore_eos"),
        ({"structured_outputs": LETTER, "min_tokens": 3}, "min_tokens"),
        ({"tools": [tool("f", {"type": "array"})], "tool_choice": "required"}, "an object's schema"),
        ({"structured_outputs": {"json": {"enum": ["x" * 200_000]}}}, "the most"),
        ({"structured_outputs": {}}, "needs one of"),
        ({"logit_bias": {"300": 1}}, "logit_bias"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_obeyed_is_refused_in_a_line(http: httpx.Client, fields: dict[str, Any], complaint: str) -> None:
    assert complaint in refusal(http, **fields)


@pytest.mark.slow
def test_hostile_schemas_leave_the_server_alive(http: httpx.Client) -> None:
    deep: dict[str, Any] = {"type": "integer"}
    for number in range(7):
        deep = {"allOf": [{"anyOf": [deep, {"const": number}]}, {"anyOf": [{"const": number + 1}, deep]}]}
    for schema in (
        {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(2500)}},
        {"anyOf": [{"type": "object", "properties": {f"p{n}": {"type": "string"}}} for n in range(1200)]},
        deep,
        {"$ref": "#"},
        {"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}},
        {"$ref": "#/$defs/n", "$defs": {"n": NODE}},
        {"$ref": "#/$defs/n", "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}, "minItems": 1}}},
        {"$ref": "#/$defs/n", "$defs": {"n": {"anyOf": [NODE, {"allOf": [{"$ref": "#/$defs/n"}]}]}}},
        {"$ref": "http://example.org/x"},
        {"type": "string", "pattern": "((x{99}){99}){99}"},
        {"type": "string", "pattern": "(.*a.{30}b){9}"},
        {"type": "string", "pattern": "\\p{L}" * 2000},
        {"type": "array", "minItems": 10**9, "items": {}},
        {"x-guidance": {"whitespace_pattern": "("}, "type": "object"},
    ):
        reply = http.post(CHAT, json={"messages": USER, "structured_outputs": {"json": schema}, "max_tokens": 20})
        assert reply.status_code in (200, 400), reply.text[:300]
    assert ask(http, structured_outputs={"choice": ["yes"]})["message"]["content"] == "yes"


@pytest.mark.slow
def test_strict_is_not_in_the_prompt_and_penalties_change_the_reply(http: httpx.Client) -> None:
    def sampled(**fields: Any) -> Any:
        reply = http.post(CHAT, json={"messages": USER, "seed": 1, "max_tokens": 24, "temperature": 0, **fields})
        assert reply.status_code == 200, reply.text
        return reply.json()["usage"]["prompt_tokens"], reply.json()["choices"][0]["message"]["content"]

    assert sampled(tools=[tool("count", COUNT)])[0] == sampled(tools=[tool("count", COUNT, strict=True)])[0]
    plain = sampled()
    neutral = {"frequency_penalty": 0, "presence_penalty": 0, "repetition_penalty": 1, "logit_bias": {"5": 0}}
    assert sampled(**neutral, response_format={"type": "text"}, parallel_tool_calls=False) == plain
    for field in ({"frequency_penalty": 2}, {"repetition_penalty": 5}, {"logit_bias": {"40": 100}}):
        assert sampled(**field) != plain


def test_the_parse_helper_of_openai(server: InferenceServer) -> None:
    import openai  # takes seconds

    class Plan(BaseModel):
        done: bool

    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client:
        said = client.chat.completions.parse(model="tiny", messages=USER, response_format=Plan, seed=2)  # type: ignore[arg-type]
        assert isinstance(said.choices[0].message.parsed, Plan)


def test_equal_grammars_at_once_are_compiled_once() -> None:
    compiled = []

    class Slow:
        def compile(self, source: str) -> str:
            compiled.append(source)
            time.sleep(0.05)
            return f"grammar of {source}"

    async def both(formats: Formats) -> list[object]:
        body = CompletionBody.model_validate({"prompt": "a", "structured_outputs": {"regex": "[ab]"}})
        return await asyncio.gather(*(formats.grammar_of(body) for _ in range(6)))

    found = asyncio.run(both(Formats(Slow)))
    assert len(compiled) == 1
    assert len(set(found)) == 1


def test_a_kept_grammar_waits_for_no_other_and_a_refused_one_is_compiled_once_for_all_who_ask() -> None:
    compiled = []

    class Slow:
        def compile(self, source: str) -> str:
            compiled.append(source)
            time.sleep(0.0 if "kept" in source else 0.5)
            if "refused" in source:
                raise grammar_trial.GrammarError("no")
            return source

    def body(regex: str) -> CompletionBody:
        return CompletionBody.model_validate({"prompt": "a", "structured_outputs": {"regex": regex}})

    async def play(formats: Formats) -> None:
        await formats.grammar_of(body("kept"))
        slow = [asyncio.create_task(formats.grammar_of(body("refused"))) for _ in range(4)]
        await asyncio.sleep(0.1)
        async with asyncio.timeout(0.2):
            await formats.grammar_of(body("kept"))
        assert {type(error) for error in await asyncio.gather(*slow, return_exceptions=True)} == {ApiError}

    asyncio.run(play(Formats(Slow)))
    assert len(compiled) == 2
