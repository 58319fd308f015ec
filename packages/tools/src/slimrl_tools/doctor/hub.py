"""The Hugging Face Hub: whether it answers, or is not to be asked; and its cache."""

from pathlib import Path

from huggingface_hub import constants

from slimrl.io.http import HttpError, Peer, ask_once
from slimrl.io.secrets import redact
from slimrl.monitor.findings import Finding, Level

TIMEOUT_S = 3.0
OFFLINE = "Packaged models, directories and `.gguf` files need no Hub; HF_HUB_OFFLINE=1 makes runs say so at once."


def probe() -> list[Finding]:
    """A finding on the Hub."""
    cache = Path(constants.HF_HUB_CACHE)
    num = len(list(cache.glob("models--*"))) if cache.is_dir() else 0
    kept = f"{num} model{'' if num == 1 else 's'} in its cache {cache}"
    if constants.HF_HUB_OFFLINE:
        text = f"not to be asked (HF_HUB_OFFLINE); {kept}"
        return [Finding("hub", Level.OK, text, "Unset HF_HUB_OFFLINE to fetch other models.")]
    return [hub_finding(redact(constants.ENDPOINT), ask(constants.ENDPOINT), kept)]


def ask(url: str) -> str:
    """Why a server does not answer; empty if it does, with whatever status."""
    try:
        ask_once(Peer("Hub", url), url, TIMEOUT_S, "HEAD")
    except HttpError as error:
        return "" if error.status else error.said
    return ""


def hub_finding(endpoint: str, trouble: str, kept: str) -> Finding:
    """Whether models can be fetched from the Hub."""
    if trouble:
        return Finding("hub", Level.NOTE, f"{endpoint} cannot be reached ({trouble}); {kept}", OFFLINE)
    return Finding("hub", Level.OK, f"{endpoint} answers; {kept}")
