"""Finds secrets in texts and removes them before a text is shown. A secret is recognised by its name, by its format,
or by its place in a URL.

API keys are read from the environment, and never appear in an address, file or message.
"""

import os
import re
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, urlsplit

from slimrl.errors import UserError
from slimrl.io.urls import fault_of_base_url

HIDDEN = "[key]"
MIN_KEY_CHARS = 8  # a shorter key is not a secret, but a placeholder such as EMPTY
NAME = re.compile(
    r"(.*_)?(api_?keys?|(access|secret|private|auth)_?keys?"
    r"|(openai|anthrop[a-z]+|azure|google|hf|wandb|judge|teacher|server|serper|tavily|subscription|account|signing|license)_?key"
    r"|passwords?|passwd|passphrase|pwd|secrets?|credentials?|authorization|bearer|cookies?"
    r"|(api|auth|access|bearer|refresh|session|secret|client|user|hf|hub|huggingface|github|gitlab|wandb|openai|sandbox"
    r"|judge|sas)_?token)|token|(.*_)?auth"
)
# Short names that mean an API key in a URL, but are harmless elsewhere.
IN_ADDRESS = ("key", "code", "sig", "signature")
# The usual formats of API keys, for other texts.
FORM = re.compile(
    r"\b(?:Bearer\s+[\w.~+/-]{8,}=*|sk-[\w-]{16,}|hf_[A-Za-z0-9]{16,}|gh[a-z]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|AIza[\w-]{30,}|xox[abps]-[\w-]{10,}|AKIA[0-9A-Z]{16}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]+)"
)
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


def names_secret(name: str) -> bool:
    """Return True if the value of a setting with this name is a secret. A setting that names an environment variable is
    not secret.

    >>> names_secret("openai-api-key"), names_secret("Authorization"), names_secret("accessToken")
    (True, True, True)
    >>> names_secret("api_key_variable"), names_secret("max_tokens"), names_secret("eos_token")
    (False, False, False)
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_")
    return NAME.fullmatch(words) is not None


def has_secret(text: str) -> str:
    """Describe the secret in a text. Return an empty text if the text has no secret.

    >>> has_secret("http://localhost:8000/v1?api_key=abc"), has_secret("http://localhost:8000/v1?page=2")
    ('an address with a key in it (`...?...`)', '')
    """
    # Within a longer text, such as a prompt, a key must contain a digit: "Bearer certificates" is not a key.
    if FORM.fullmatch(text.strip()) or any(any(map(str.isdigit, found)) for found in FORM.findall(text)):
        return "a key"
    if not ADDRESS.fullmatch(text):
        return ""
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    if "@" in (parts.netloc or text):
        return "an address with a user or a password in it (`...@...`)"
    names = [name for name, _ in (*parse_qsl(parts.query), *parse_qsl(parts.fragment))]
    if any(names_secret(name) or name.lower() in IN_ADDRESS for name in names):
        return "an address with a key in it (`...?...`)"
    return ""


def redact(text: str) -> str:
    """Replace each secret in the text by `[key]`.

    >>> redact('found api_key = "abc" and http://me:pw@host/v1?key=abc&page=2')
    'found api_key = "[key]" and http://[key]@host/v1?key=[key]&page=2'
    """
    text = re.sub(r"(?<=://)[^\s/@?#]+@", f"{HIDDEN}@", text)
    text = re.sub(r"([?&#]([\w.-]+)=)[^\s&#'\"`]+", _hide_parameter, text)
    text = FORM.sub(HIDDEN, text)
    return re.sub(
        r"(?<![\w.-])((?:[\w-]+\.)*([\w-]+)(?:[\"'`\\]*\s*=|[\"'\\]+\s*:)\s*[\"'`\\]*)[^\s\"'`\\,}\]]+",
        _hide_value,
        text,
    )


def redact_key(data: bytes, key: str) -> bytes:
    """Return the text of a response with `[key]` in place of the API key. Some servers repeat an unknown key in their
    response, and responses are logged.

    >>> redact_key(b"unknown key: sk-12345", "sk-12345")
    b'unknown key: [key]'
    """
    return data.replace(key.encode(), HIDDEN.encode()) if len(key) >= MIN_KEY_CHARS else data


def redact_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command line. Each secret, and the word after the flag of a secret, is replaced by
    `[key]`."""
    before = ("", *words)
    return [
        HIDDEN if flag.startswith("--") and names_secret(flag.rpartition(".")[2].lstrip("-")) else redact(word)
        for flag, word in zip(before, words, strict=False)
    ]


def read_api_key(variable: str, variables: Mapping[str, str] = os.environ) -> str:
    """Return the API key in an environment variable, empty if it is not set. Raise UserError if it is invalid."""
    key = variables.get(variable, "").strip()  # a key from a file often ends with a newline
    if not (key.isascii() and key.isprintable()) or "\\" in key:
        raise UserError(f"the key in the variable {variable} has characters that no key has.")
    return key


def check_address(base_url: str, who: str) -> None:
    """Raise UserError if an address has a key in it, because messages and files show addresses. The error message does
    not show the address."""
    if fault := fault_of_base_url(base_url):
        raise UserError(
            f"{who}: `base_url` has {fault}. Remove it: a key goes into the variable of the environment that "
            "`api_key_variable` names."
        )


def _hide_parameter(found: re.Match[str]) -> str:
    hidden = names_secret(found[2]) or found[2].lower() in IN_ADDRESS
    return f"{found[1]}{HIDDEN}" if hidden else found[0]


def _hide_value(found: re.Match[str]) -> str:
    return f"{found[1]}{HIDDEN}" if names_secret(found[2]) else found[0]
