"""The probe of the judge that `.env` or the environment names: does it answer, and does it have the model?"""

import os
from pathlib import Path

from dotenv import dotenv_values

from slimrl.io.http import HttpError, list_models
from slimrl.io.secrets import check_address, read_api_key
from slimrl.monitor.findings import Finding, Level
from slimrl_search.services.judges import JudgeSettings

TIMEOUT_S = 3.0
START = "`uv run python scripts/run_llamacpp.py` or `scripts/run_vllm.py` starts one; so does `ollama serve`"


def probe() -> list[Finding]:
    """Return a finding on the judge. Raises UserError for an address with a key in it."""
    in_file = {name: value for name, value in dotenv_values(Path(".env")).items() if value is not None}
    variables = {**in_file, **os.environ}
    settings = JudgeSettings.of(variables)
    check_address(settings.base_url, "JUDGE_BASE_URL")
    key, models, trouble = read_api_key("JUDGE_API_KEY", variables), list[str](), ""
    try:
        models = [str(one.get("id")) for one in list_models(settings.base_url, key, TIMEOUT_S)]
    except HttpError as error:
        trouble = error.said
    return [judge_finding(settings, models, trouble)]


def judge_finding(settings: JudgeSettings, models: list[str], trouble: str) -> Finding:
    """Return a finding: does the judge answer and have its model? Without a chosen model, name the available ones."""
    if not settings.model:
        text = "none is named, so answers in free text are compared by their words"
        if models:
            text += f"; {settings.base_url} has {', '.join(models)}"
        remedy = "For a judge, name a model in JUDGE_MODEL and its server in JUDGE_BASE_URL (.env)."
        return Finding("judge", Level.OK, text, remedy)
    who = f"{settings.model} at {settings.base_url}"
    if trouble:
        return Finding("judge", Level.PROBLEM, f"{who} {trouble}", START)
    if settings.model not in models:
        text = f"{who} answers, and does not list that model, but: {', '.join(models) or 'none'}"
        return Finding("judge", Level.NOTE, text, "Name one of these in JUDGE_MODEL.")
    return Finding("judge", Level.OK, f"{who} answers", "`slimrl judge calibrate` tells how far it can be trusted.")
