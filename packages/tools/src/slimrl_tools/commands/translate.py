"""The `translate` command: translates a settings file of prime-rl to a settings file of slimrl, and reports every
key."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from slimrl.config.reading.load import resolve
from slimrl.config.reading.names import names_of, print_note
from slimrl.config.reading.sources import from_file
from slimrl.config.run import COMMANDS
from slimrl.errors import visible
from slimrl.io.secrets import redact
from slimrl_tools.prime_rl.dialect import PRIME_RL, Translation
from slimrl_tools.toml_text import toml_lines

EPILOG = """\
The file may be written for prime-rl up to v0.5, for prime-rl since v0.6, or for the hosted `prime train`. Lists show
what became of its keys: taken as it is, renamed, not needed here, cannot be done; and what the file leaves open with
another default here. A key that cannot be done stops the translation: remove it from the file, or change it.

`slimrl rl @ THEIR.toml` reads such a file directly, and prints the same lists.

  slimrl translate rl.toml > mine.toml
"""


def run_translate(argv: Sequence[str]) -> int:
    """Run `slimrl translate FILE`: print the translated file, and the lists of keys to standard error."""
    parser = argparse.ArgumentParser(
        prog="slimrl translate",
        description="Translates a settings file of prime-rl into one of slimrl's.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", help="the settings file, in TOML, YAML or JSON")
    args = parser.parse_args(argv)
    source = from_file(args.file)
    # Only files of `sft` have a section `data`.
    command = "sft" if any(one.path[0] == "data" for one in source) else "rl"
    config_class = COMMANDS[command]
    names = names_of(config_class, print_note)
    if not PRIME_RL.is_foreign(source, command, names.is_known):
        resolve(config_class, names.translate(source), {}, names)  # it rejects keys unknown to slimrl
        print(f"{args.file} is a settings file of slimrl's already: slimrl {command} @ {args.file}")
        return 0
    translation = PRIME_RL.translate(source, command, names.is_known)
    for line in translation.lines():
        print(redact(visible(line)), file=sys.stderr)
    translation.refuse_impossible(args.file)
    resolve(config_class, translation.settings, {}, names)
    print(_toml(translation, args.file), end="")
    return 0


def _toml(translation: Translation, name: str) -> str:
    tree: dict[str, Any] = {}
    for one in translation.settings:
        section = tree
        for key in one.path[:-1]:
            section = section.setdefault(key, {})
        if one.value != {}:  # the header of a section sets nothing
            section[one.path[-1]] = one.value
    header = f"# slimrl {translation.command}, translated from {name}, which was written for prime-rl."
    return "\n".join([header, *toml_lines(_with_lists(tree))]) + "\n"


def _with_lists(value: Any) -> Any:
    """Return nested settings with a list in place of each section whose keys are indices."""
    if not isinstance(value, dict):
        return value
    items = {key: _with_lists(item) for key, item in value.items()}
    return [items[key] for key in sorted(items, key=int)] if items and all(map(str.isdecimal, items)) else items
