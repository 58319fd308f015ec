"""Writes the model card of saved weights: README.md in Hugging Face's format, with numbers only from the run.

The template `card.md.jinja` has the card's text. The card is written after the checksums of the weights, so an edit of
the card does not invalidate them (`io/checksums.py`). An existing README.md is never overwritten.
"""

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from slimrl.config.reading.load import Resolved
from slimrl.config.reading.saved import config_toml, toml_literal
from slimrl.config.run import RLConfig
from slimrl.io.files import explain_write_errors, replace_file
from slimrl_tools.curves.reference import recognise
from slimrl_tools.sharing.facts import RunFacts, read_facts
from slimrl_tools.sharing.places import shareable
from slimrl_tools.toml_text import toml_lines

FILE_NAME, PICTURE = "README.md", "training.png"
TEMPLATE = Path(__file__).with_name("card.md.jinja")
NO_NAME = "OWNER/NAME"  # `slimrl push` replaces it by the repository's name
IN_OTHER_TABLE = re.compile(r"held_out/(num|reward_.*)")


def write_card(run_dir: Path, weights: Path) -> Path | None:
    """Write the card of a run's weights and the plot of the run's training to the directory `weights`. Return the
    card's path, or None if there is a README.md already. Raises UserError if a file cannot be written."""
    path = weights / FILE_NAME
    if path.exists():
        return None
    picture = run_dir / PICTURE
    if picture.is_file():
        with explain_write_errors(weights / PICTURE):
            shutil.copyfile(picture, weights / PICTURE)
    text = card_text(read_facts(run_dir, weights), has_picture=picture.is_file())
    replace_file(path, [text.encode()])
    return path


def card_text(facts: RunFacts, has_picture: bool) -> str:
    """Return the text of the card, with `NO_NAME` for the Hub repository of the weights."""
    config = facts.config
    recipe, differences = recognise(config) or (None, ())
    names = {name for _, metrics in facts.stages for name in metrics if not IN_OTHER_TABLE.fullmatch(name)}
    settings = shareable(tomllib.loads(config_toml(Resolved(config, {}))))
    values: dict[str, Any] = {
        **{"facts": facts, "config": config, "is_rl": isinstance(config, RLConfig)},
        **{"has_picture": has_picture, "name": NO_NAME, "title": _title(facts)},
        "metrics": {name: [metrics.get(name) for _, metrics in facts.stages] for name in sorted(names)},
        "losses": [*zip(*facts.series.get("sft/val_loss", ((), ())), strict=True)],
        "recipe": recipe.config_file if recipe and not differences else "",
        "settings": "\n".join(toml_lines(settings)),
        "code": _code,
        "args_of": lambda env: f" {_code(toml_literal(shareable(env.args)))}" if env.args else "",
    }
    # Render and parse the card with the Hub's own client, so that the Hub accepts the card.
    card = ModelCard.from_template(_card_data(facts), str(TEMPLATE), **values)
    return re.sub(r"\n{3,}", "\n\n", str(card)).rstrip() + "\n"


def _card_data(facts: RunFacts) -> ModelCardData:
    """Return the card's metadata."""
    config, base = facts.config, facts.base
    by_rl = ["reinforcement-learning", str(config.trainer.loss.type)] if isinstance(config, RLConfig) else ["sft"]
    relation: dict[str, Any] = {"base_model_relation": "finetune"} if base.hub_name else {}
    return ModelCardData(
        base_model=base.hub_name or None,
        license=base.licence or None,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["slimrl", *by_rl, *(["lora"] if config.model.lora.rank else []), *facts.environments],
        **relation,
    )


def _title(facts: RunFacts) -> str:
    return "-".join([facts.base.best_name.rpartition("/")[2], *facts.environments])


def _code(text: str) -> str:
    """Return a text as inline code of Markdown. The result is also valid inside a table."""
    return f"`{' '.join(text.replace('`', chr(39)).split())}`".replace("|", "\\|")
