"""The pages of settings, rendered from the classes that `slimrl COMMAND --help` is rendered from. Knows no MkDocs."""

import inspect
import json
from collections.abc import Iterator
from typing import Any

from slimrl.config.base import OTHER_VARIABLES, CommandConfig, Config
from slimrl.config.reading.schema import Spec, below, describe, keys_below, spec_of
from slimrl.config.run import COMMANDS

INDEX = """\
# Settings

Rendered from the classes that read them, as `slimrl COMMAND --help` is.

| command | what it does |
|---|---|
{rows}

What most people change first in `rl`:

| setting | what it is |
|---|---|
| `model.name` | the model |
| `max_steps` | training steps |
| `trainer.optim.lr` | learning rate |
| `orchestrator.rollouts_per_example`, `orchestrator.batch_size` | group size, and rollouts a step |
| `orchestrator.sampling.max_tokens` | the longest reply |
| `trainer.loss.type`, `trainer.loss.kl_beta` | algorithm, and divergence from the starting weights |
| `eval.num_examples`, `eval.interval_steps` | held-out tasks, and how often |

Settings are read in this order, and the first that has one wins:

1. a flag, `--trainer.optim.lr 2e-5`; `-` and `_` are the same, `--key` alone is true
2. files after `@`, in TOML, YAML or JSON; of several the last one wins, and sections merge key by key
3. `--section @ FILE`, the same for one section
4. variables, `SLIMRL_TRAINER__OPTIM__LR=2e-5` (`PRIME_...` is read too, and counts for less)
5. the default

Lists and dictionaries are written in TOML or JSON: `--orchestrator.env '[{id="reverse-text"}]'`. One element is
reached by its number: `--orchestrator.env.0.id reverse-text`. `--dry-run` prints every setting and where it came
from. An unknown key is an error that names the file, the line and the nearest key.

Variables that set nothing in the configuration:

{variables}
"""


def settings_pages() -> dict[str, str]:
    """Return the page of every command's settings by the command's name, and their index."""
    return {"index": settings_index(), **{name: settings_page(command) for name, command in COMMANDS.items()}}


def settings_index() -> str:
    """Return the page that says which command has which settings, and in what order settings are read."""
    rows = [f"| [`{name}`]({name}.md) | {first_sentence(doc(command))} |" for name, command in COMMANDS.items()]
    variables = [f"- `{name}`: {meaning}" for name, meaning in OTHER_VARIABLES.items()]
    return INDEX.replace("{rows}", "\n".join(rows)).replace("{variables}", "\n".join(variables))


def settings_page(command: type[CommandConfig]) -> str:
    """Return every setting of a command as tables, a section each, with type, default and meaning."""
    examples = ["## Examples", "", "```bash", *command.examples, "```", ""]
    return "\n".join(
        [f"# {command.command}", "", doc(command), "", *examples, *section(spec_of(command), (), "Top level")]
    )


def section(spec: Spec, path: tuple[str, ...], title: str, note: str = "") -> Iterator[str]:
    """Yield the lines of one section, then those of the sections inside it."""
    fields = {key: field for key in keys_below(spec) if (field := below(spec, key))}
    inner = {key: field for key, field in fields.items() if item_of(field).sections}
    yield from [f"## {title}", ""]
    if path:
        yield from [*(f"{doc(kind)}\n" for kind in spec.sections), *([note, ""] if note else [])]
    plain = {key: field for key, field in fields.items() if key not in inner}
    if plain:
        yield from ["| setting | meaning |", "|---|---|"]
        for key, field in plain.items():
            name = ".".join((*path, key))
            yield f"| `{name}` | {cell(describe(field))}, {default(field)}.<br>{cell(meaning(field))} |"
        yield ""
    for key, field in inner.items():
        yield from variants(field, (*path, key))


def variants(field: Spec, path: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of a section: of each kind of it if there are several, of an element if it is a list."""
    name = ".".join(path)
    if field.is_list:
        yield from section(item_of(field), (*path, "0"), f"`[[{name}]]`", f"A {describe(field)}. {meaning(field)}")
    elif len(field.sections) == 1:
        yield from section(field, path, f"`[{name}]`")
    else:
        for kind in field.sections:
            chosen = describe(Spec(kind.model_fields["type"]))
            yield from section(spec_of(kind), path, f"`[{name}]` with `type = {chosen}`")


def item_of(field: Spec) -> Spec:
    """Return what a list holds; anything else is its own item."""
    return (below(field, "0") or field) if field.is_list else field


def default(field: Spec) -> str:
    """Return what holds if nothing is set, in words."""
    value: Any = field.default
    if field.is_required:
        return "required"
    if isinstance(value, Config):
        return "by default as below"
    return f"by default `{value!r}`" if isinstance(value, float) else f"by default `{json.dumps(value)}`"


def meaning(field: Spec) -> str:
    return (field.field.description if field.field else None) or ""


def cell(text: str) -> str:
    """Return the text as it may stand in a cell of a table: on one line, and with no bar that would end the cell."""
    return " ".join(text.split()).replace("|", "&#124;")


def doc(kind: type[Config]) -> str:
    return inspect.cleandoc(kind.__doc__ or "")


def first_sentence(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())
