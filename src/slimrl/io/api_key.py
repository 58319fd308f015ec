"""API keys: they come from the environment, and are in no address, file or message."""

import os
import re
from collections.abc import Mapping

from slimrl.errors import UserError
from slimrl.io.urls import fault_of_base_url

MIN_KEY_CHARS = 8  # a shorter key is no secret, but a placeholder such as EMPTY


def read_api_key(variable: str, variables: Mapping[str, str] = os.environ) -> str:
    """The API key in an environment variable, empty if it is not set. Raises UserError for text that can be no key."""
    key = variables.get(variable, "").strip()  # files of secrets end with a newline
    if not (key.isascii() and key.isprintable()) or "\\" in key:
        raise UserError(f"the key in the variable {variable} has characters that no key has.")
    return key


def redact_key(data: bytes, key: str) -> bytes:
    r"""The text of a response with `[key]` in place of the API key, however JSON escapes it.

    Some servers repeat a key that they do not know, and their responses end up in logs. In JSON, and in JSON inside of
    JSON, any character of the key may be escaped.

    >>> redact_key(b"unknown key: sk-12345", "sk-12345"), redact_key(rb"unknown key: sk\u002D12345", "sk-12345")
    (b'unknown key: [key]', b'unknown key: [key]')
    """
    if len(key) < MIN_KEY_CHARS:
        return data
    if not _is_text(data):
        return b"[no UTF-8 text, which may contain the key]"
    return re.sub("".join(map(_char_pattern, key)).encode(), b"[key]", data)


def check_address(base_url: str, who: str) -> None:
    """Raises UserError for an address with a key in it, which every message and file that names the address would
    repeat. The error itself does not."""
    if fault := fault_of_base_url(base_url):
        raise UserError(
            f"{who}: `base_url` has {fault}. Remove it: a key goes into the variable of the environment that "
            "`api_key_variable` names."
        )


def _is_text(data: bytes) -> bool:
    """Whether the bytes are UTF-8 text. In UTF-16 zeros would separate the characters of a key and hide it."""
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def _char_pattern(char: str) -> str:
    """A pattern for all the ways in which JSON may write a character."""
    # JSON inside of JSON doubles the backslashes. The bound on their number keeps the search linear.
    plain = re.escape(char)
    return rf"(?:{plain}|\\{{1,8}}(?:{plain}|u(?i:{ord(char):04x})))"
