"""Writes the model card of saved weights: README.md in Hugging Face's format, with numbers only from the run.

The template `card.md.jinja` has the card's text. The card is written after the checksums of the weights, so an edit of
the card does not invalidate them (`io/checksums.py`). A README.md that slimrl did not write, or that was edited, is
never overwritten.
"""

import hashlib
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from slimrl.config.reading.load import Resolved
from slimrl.config.reading.saved import config_toml, toml_literal
from slimrl.config.run import RLConfig
from slimrl.io.files import explain_write_errors, replace_file
from slimrl.io.regular_file import read_regular
from slimrl.stats import Estimate
from slimrl_tools.curves.reference import recognise
from slimrl_tools.sharing.facts import MAX_BYTES, RunFacts, read_facts
from slimrl_tools.sharing.places import shareable, shareable_text

FILE_NAME, PICTURE = "README.md", "training.png"
TEMPLATE = Path(__file__).with_name("card.md.jinja")
MARK = re.compile(r"\n<!-- written by slimrl, sha256 ([0-9a-f]{64}) -->\n\Z")
IN_OTHER_TABLE = re.compile(r"held_out/(num|reward_.*)")


def write_card(run_dir: Path, weights: Path) -> Path | None:
    """Write the card of a run's weights and the plot of the run's training to the directory `weights`. Return the
    card's path, or None if an existing README.md must not be overwritten. Raises UserError if a file cannot be
    written."""
    path = weights / FILE_NAME
    if not may_replace(path):
        return None
    picture = run_dir / PICTURE
    if picture.is_file():
        with explain_write_errors(weights / PICTURE):
            shutil.copyfile(picture, weights / PICTURE)
    text = card_text(read_facts(run_dir, weights), has_picture=picture.is_file())
    replace_file(path, [text.encode()])
    return path


def may_replace(path: Path) -> bool:
    """Return True if README.md is missing at `path`, or if slimrl wrote it and nobody has edited it."""
    if not path.exists():
        return True
    text = read_regular(path, MAX_BYTES).decode("utf-8", "replace")
    found = MARK.search(text)
    return found is not None and _digest(text[: found.start()]) == found[1]


def card_text(facts: RunFacts, has_picture: bool, repository: str = "", is_adapter: bool = False) -> str:
    """Return the text of the card. `repository` is the Hub repository of the weights; it is empty if they have no
    repository yet."""
    config = facts.config
    recipe, differences = recognise(config) or (None, ())
    names = {name for _, metrics in facts.stages for name in metrics if not IN_OTHER_TABLE.fullmatch(name)}
    values: dict[str, Any] = {
        **{"facts": facts, "config": config, "is_rl": isinstance(config, RLConfig), "is_adapter": is_adapter},
        **{"has_picture": has_picture, "name": repository or model_name(facts)},
        "metrics": {name: [metrics.get(name) for _, metrics in facts.stages] for name in sorted(names)},
        "losses": [*zip(*facts.series.get("sft/val_loss", ((), ())), strict=True)],
        "recipe": recipe.config_file if recipe and not differences else "",
        "settings": shareable_text(config_toml(Resolved(config, {})), ".toml"),
        "code": _code,
        "args_of": lambda env: f" {_code(toml_literal(shareable(env.args)))}" if env.args else "",
    }
    # Render and parse the card with the Hub's own client, so that the Hub accepts the card.
    card = ModelCard.from_template(card_data(facts, repository, is_adapter), str(TEMPLATE), **values)
    text = re.sub(r"\n{3,}", "\n\n", str(card)).rstrip() + "\n"
    return f"{text}\n<!-- written by slimrl, sha256 {_digest(text)} -->\n"


def card_data(facts: RunFacts, repository: str = "", is_adapter: bool = False) -> ModelCardData:
    """Return the card's metadata, with the held-out results as a model index."""
    config, base = facts.config, facts.base
    by_rl = ["reinforcement-learning", str(config.trainer.loss.type)] if isinstance(config, RLConfig) else ["sft"]
    relation: dict[str, Any] = {"base_model_relation": "adapter" if is_adapter else "finetune"}
    return ModelCardData(
        base_model=base.hub_name or None,
        license=base.licence or None,
        library_name="peft" if is_adapter else "transformers",
        pipeline_tag="text-generation",
        tags=["slimrl", *by_rl, *(["lora"] if config.model.lora.rank else []), *facts.environments],
        model_name=repository.rpartition("/")[2] or model_name(facts),
        eval_results=list(_eval_results(facts)) or None,
        **(relation if base.hub_name else {}),
    )


def model_name(facts: RunFacts) -> str:
    """Return a name for weights that have no name on the Hub yet."""
    return re.sub(r"[^\w.-]+", "-", "-".join([facts.base.best_name.rpartition("/")[2], *facts.environments]))


def _eval_results(facts: RunFacts) -> Iterator[EvalResult]:
    """Yield the held-out results of these weights, each with the result before training."""
    if not facts.evaluated:
        return
    (first, _), (last, _) = facts.stages[0], facts.stages[-1]
    for mode, estimate in last.held_out.items():
        before = first.held_out.get(mode) if first is not last else None
        yield EvalResult(
            task_type="text-generation",
            dataset_type="slimrl-environment",
            dataset_name=", ".join(facts.environments),
            dataset_split="test",
            metric_type="reward",
            metric_value=round(estimate.mean, 6),
            metric_name=f"held-out reward, {mode}",
            metric_args={"decoding": mode, **_numbers(estimate)}
            | ({"before": {"weights": first.name, **_numbers(before)}} if before else {}),
        )


def _numbers(estimate: Estimate) -> dict[str, Any]:
    known = {"mean": estimate.mean, "low_95": estimate.low, "high_95": estimate.high}
    return {**{key: round(value, 6) for key, value in known.items() if math.isfinite(value)}, "n": estimate.num}


def _code(text: str) -> str:
    """Return a text as inline code of Markdown. The result is also valid inside a table."""
    return f"`{' '.join(text.replace('`', chr(39)).split())}`".replace("|", "\\|")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
