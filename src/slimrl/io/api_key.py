"""API keys: they are read from the environment, and never appear in an address, file or message."""

import os
import re
from collections.abc import Mapping

from slimrl.errors import UserError
from slimrl.io.urls import fault_of_base_url

MIN_KEY_CHARS = 8  # a shorter key is not a secret, but a placeholder such as EMPTY


def read_api_key(variable: str, variables: Mapping[str, str] = os.environ) -> str:
    """Return the API key in an environment variable, empty if it is not set. Raise UserError if it is invalid."""
    key = variables.get(variable, "").strip()  # files of secrets have a newline at their end
    if not (key.isascii() and key.isprintable()) or "\\" in key:
        raise UserError(f"the key in the variable {variable} has characters that no key has.")
    return key


def redact_key(data: bytes, key: str) -> bytes:
    r"""Return the text of a response with `[key]` in place of the API key, however JSON escapes it.

    Some servers repeat an unknown key, and their responses are logged. In JSON, and in JSON inside of JSON, any
    character of the key may be escaped.

    >>> redact_key(b"unknown key: sk-12345", "sk-12345"), redact_key(rb"unknown key: sk\u002D12345", "sk-12345")
    (b'unknown key: [key]', b'unknown key: [key]')
    """
    if len(key) < MIN_KEY_CHARS:
        return data
    if not _is_text(data):
        return b"[no UTF-8 text, which may contain the key]"
    return re.sub("".join(map(_char_pattern, key)).encode(), b"[key]", data)


def check_address(base_url: str, who: str) -> None:
    """Raise UserError for an address with a key in it, since every message and file with the address would repeat it.
    The error itself does not."""
    if fault := fault_of_base_url(base_url):
        raise UserError(
            f"{who}: `base_url` has {fault}. Remove it: a key goes into the variable of the environment that "
            "`api_key_variable` names."
        )


def _is_text(data: bytes) -> bool:
    """Return True if the bytes are UTF-8 text. In UTF-16 zeros would separate the characters of a key and hide it."""
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def _char_pattern(char: str) -> str:
    """Return a pattern for all spellings of a character in JSON."""
    # JSON inside of JSON doubles the backslashes. The bound on their number keeps the search linear.
    plain = re.escape(char)
    return rf"(?:{plain}|\\{{1,8}}(?:{plain}|u(?i:{ord(char):04x})))"
