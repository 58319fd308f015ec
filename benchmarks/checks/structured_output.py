"""Calls 30 tools 500 times at temperature 1, and counts the calls whose arguments obey the tool's JSON schema.

`uv run python -m benchmarks.checks.structured_output`: SmolLM2-135M behind the real server, each request with one tool
of `tool_schemas.jsonl` and `tool_choice` by its name. The package jsonschema is the judge. A reply that was cut off by
`max_tokens` is none that obeys, and is counted apart. Then the masks are timed without a model: random walks through
the grammars. Writes `benchmarks/results/structured_output.json`; the exit status is 1 if a whole call disobeys.
"""

import argparse
import json
import random
import statistics
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import torch

from benchmarks.harness.measure import RESULTS, machine_facts, write_result
from slimrl.config.model import ModelConfig
from slimrl.config.serve import ServeConfig
from slimrl_serve.bodies import ChatBody
from slimrl_serve.command import InferenceServer
from slimrl_serve.formats import source_of
from slimrl_serve.grammar import GrammarCompiler, token_masks

TOOLS = Path(__file__).parent / "tool_schemas.jsonl"
CONTEXT_LEN, MAX_TOKENS, SLOTS = 1536, 1024, 48
WALKS, STEPS = 3, 60  # random walks through each grammar, and the tokens of each


def body_of(tool: dict[str, Any], seed: int) -> dict[str, Any]:
    """The request that must call a tool."""
    function = {"name": tool["name"], "parameters": tool["parameters"]}
    return {
        "messages": [{"role": "user", "content": tool["question"]}],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": tool["name"]}},
        "temperature": 1.0,
        "seed": seed,
        "max_tokens": MAX_TOKENS,
    }


def outcome(reply: httpx.Response, tool: dict[str, Any]) -> tuple[str, int, str]:
    """What became of a request in a word, its number of tokens, and the arguments or the reply."""
    if reply.status_code != 200:
        return f"status {reply.status_code}", 0, reply.text[:300]
    said = reply.json()
    choice, tokens = said["choices"][0], int(said["usage"]["completion_tokens"])
    calls = choice["message"].get("tool_calls") or []
    if choice["finish_reason"] == "length":
        return "cut off", tokens, str(choice["message"]["content"])
    if len(calls) != 1 or calls[0]["function"]["name"] != tool["name"]:
        return "no call", tokens, str(choice["message"])
    arguments = calls[0]["function"]["arguments"]
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    try:
        jsonschema.Draft202012Validator(tool["parameters"], format_checker=checker).validate(json.loads(arguments))
    except (jsonschema.ValidationError, ValueError) as error:
        return "disobeyed", tokens, f"{arguments} {error}"[:600]
    return "obeyed", tokens, arguments


def mask_times(server: InferenceServer, tools: list[dict[str, Any]]) -> dict[str, float]:
    """Microseconds per token of a mask and of the step behind it, and milliseconds to compile a grammar."""
    policy, num_tokens = server.service.policy, server.service.vocabulary.num_tokens
    compiler = GrammarCompiler(policy.tokenizer, num_tokens, policy.chat.stop_ids)
    rng, masks, steps, compiled = random.Random(0), list[float](), list[float](), list[float]()
    for tool in tools:
        _, source = source_of(ChatBody.model_validate(body_of(tool, 0)), False)
        began = time.perf_counter()
        grammar = compiler.compile(source)
        compiled.append((time.perf_counter() - began) * 1e3)
        for _ in range(WALKS):
            matcher = grammar.deep_copy()
            for _ in range(STEPS):
                began = time.perf_counter()
                allowed = token_masks([matcher], num_tokens, torch.device("cpu"))
                masks.append((time.perf_counter() - began) * 1e6)
                token = rng.choice(allowed[0].nonzero()[:, 0].tolist())
                began = time.perf_counter()
                matcher.consume_token(token)
                steps.append((time.perf_counter() - began) * 1e6)
                if matcher.is_stopped():
                    break
    return {
        "mask_us_median": round(statistics.median(masks), 1),
        "mask_us_p99": round(statistics.quantiles(masks, n=100)[98], 1),
        "mask_us_most": round(max(masks), 1),
        "accept_us_median": round(statistics.median(steps), 1),
        "compile_ms_median": round(statistics.median(compiled), 2),
        "compile_ms_most": round(max(compiled), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--threads", type=int, default=1, help="more wait for each other on cores that others use too")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--output", type=Path, default=RESULTS / "structured_output.json")
    given = parser.parse_args()
    tools = [json.loads(line) for line in TOOLS.read_text(encoding="utf-8").splitlines()]
    model = ModelConfig(name=given.model, num_threads=given.threads)
    config = ServeConfig(port=0, context_len=CONTEXT_LEN, max_slots=SLOTS, max_queue=256, grace_s=1, model=model)
    before = machine_facts()
    with InferenceServer(config) as server, httpx.Client(base_url=server.address, timeout=3600) as client:
        masks = mask_times(server, tools)
        print(masks, flush=True)
        began = time.perf_counter()

        def ask(number: int) -> tuple[str, int, str]:
            tool = tools[number % len(tools)]
            found = outcome(client.post("/v1/chat/completions", json=body_of(tool, number)), tool)
            print(number, tool["name"], found, flush=True)
            return found

        with ThreadPoolExecutor(SLOTS) as pool:
            found = list(pool.map(ask, range(given.requests)))
        seconds = time.perf_counter() - began
    counts = Counter(kind for kind, _, _ in found)
    result = {
        "model": given.model,
        "threads": given.threads,
        "llguidance": version("llguidance"),
        "tools": len(tools),
        "requests": given.requests,
        "outcomes": dict(counts),
        "tokens": sum(tokens for _, tokens, _ in found),
        "seconds": round(seconds, 1),
        "masks": masks,
        "examples": {tools[number]["name"]: found[number][2] for number in range(min(len(tools), given.requests))},
        "not_obeyed": [
            [tools[number % len(tools)]["name"], kind, text[:600]]
            for number, (kind, _, text) in enumerate(found)
            if kind != "obeyed"
        ],
    }
    write_result(given.output, before, result, {})
    print(dict(counts), f"in {seconds:.0f} s")
    raise SystemExit(0 if set(counts) <= {"obeyed", "cut off"} else 1)


if __name__ == "__main__":
    main()
