"""Gives chat templates that read the clock (`strftime_now`) a fixed date, so that a run's prompts do not change."""

import json
from datetime import date

READER = "strftime_now"
# Python's directives, and glibc's and macOS's form without a leading zero. `%%` is first, so that "%%d" stays "%d".
_DIRECTIVES = [f"%{flag}{letter}" for flag in ("", "-") for letter in "aAbBcdeDFGhHIjlmMnpSTuUVwWxXyYzZ"]


def reads_clock(template: str) -> bool:
    """Whether a chat template asks for the date or the time."""
    return READER in template


def with_date(template: str, day: date) -> str:
    """The chat template with a clock of its own, which always says midnight of that day, if it reads the clock."""
    if not reads_clock(template):
        return template
    values = {"%%": "\0", **{name: day.strftime(name) for name in _DIRECTIVES}, "\0": "%"}
    # A name that a template defines itself hides the function of transformers. The line break ends up in no text.
    return (
        f"{{% macro {READER}(format) %}}{{% set clock = namespace(text=format) %}}"
        f"{{% for name, value in {json.dumps(values)}.items() %}}"
        "{% set clock.text = clock.text.replace(name, value) %}{% endfor %}{{ clock.text }}{% endmacro %}\n"
        f"{template}"
    )
