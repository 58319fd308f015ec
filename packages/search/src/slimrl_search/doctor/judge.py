"""Probes the judge that `.env` or the environment variables name: its server must answer and serve the model."""

import os
from pathlib import Path
from typing import Any

from dotenv import dotenv_values

from slimrl.io.http import HttpError, Peer, ask_once
from slimrl.io.secrets import check_address, read_api_key
from slimrl.monitor.findings import Finding, Level
from slimrl_search.services.judges import JudgeSettings

TIMEOUT_S = 3.0
START = "`uv run python scripts/run_llamacpp.py` or `scripts/run_vllm.py` starts one; so does `ollama serve`"
TRUST = "`slimrl judge calibrate` tells how far it can be trusted."


def probe() -> list[Finding]:
    """Return a finding on the judge: whether its server answers and has the model. If JUDGE_MODEL is not set, the
    finding lists the available models. Raises UserError if the address contains a key."""
    in_file = {name: value for name, value in dotenv_values(Path(".env")).items() if value is not None}
    variables = {**in_file, **os.environ}
    judge = JudgeSettings.of(variables)
    check_address(judge.base_url, "JUDGE_BASE_URL")
    where, models, trouble = f"{judge.model} at {judge.base_url}", list[str](), ""
    try:
        key = read_api_key("JUDGE_API_KEY", variables)
        models = [str(one.get("id")) for one in _list_models(judge.base_url, key, TIMEOUT_S)]
    except HttpError as error:
        trouble = error.said
    if not judge.model:
        there = f"; {judge.base_url} has {', '.join(models)}" if models else ""
        text = f"none is named, so answers in free text are compared by their words{there}"
        remedy = "For a judge, name a model in JUDGE_MODEL and its server in JUDGE_BASE_URL (.env)."
        return [Finding("judge", Level.OK, text, remedy)]
    if trouble:
        return [Finding("judge", Level.PROBLEM, f"{where} {trouble}", START)]
    if judge.model not in models:
        text = f"{where} answers, and does not list that model, but: {', '.join(models) or 'none'}"
        return [Finding("judge", Level.NOTE, text, "Name one of these in JUDGE_MODEL.")]
    return [Finding("judge", Level.OK, f"{where} answers", TRUST)]


def _list_models(base_url: str, key: str, timeout_s: float) -> list[dict[str, Any]]:
    """Return the models in `/models` of a server with OpenAI's protocol. Raise the same HttpErrors as `ask_once`."""
    reply = ask_once(Peer("server", base_url, key), f"{base_url.rstrip('/')}/models", timeout_s)
    models = reply.get("data", []) if isinstance(reply, dict) else []
    return [one for one in models if isinstance(one, dict)] if isinstance(models, list) else []
