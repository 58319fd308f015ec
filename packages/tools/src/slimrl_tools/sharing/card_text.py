"""Makes the tables and sentences of a model card, which `card.md.jinja` puts together."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from slimrl.config.data import ExpertDataConfig
from slimrl.config.reading.write import toml_literal
from slimrl.config.run import RLConfig, SFTConfig, TrainingRunConfig
from slimrl_tools.curves.reference import Recipe, recognise
from slimrl_tools.sharing.facts import RunFacts
from slimrl_tools.sharing.places import shareable

NO_METRIC = re.compile(r"held_out/(num|reward_.*)")  # the rewards have a table of their own


def card_values(facts: RunFacts, is_adapter: bool) -> dict[str, Any]:
    """Return the values of the card's template. An empty text leaves its section out."""
    base, config = facts.base.hub_name or facts.base.name, facts.config
    recipe, differences = recognise(config) or (None, ())
    return {
        "facts": facts,
        "about": _about(facts, is_adapter),
        "is_adapter": is_adapter,
        "rewards": _table(("decoding", "weights", "mean", "95% interval", "n"), _rewards(facts)),
        "metrics": _table(("metric", *(stage.name for stage in facts.stages)), _metrics(facts)),
        "losses": _table(("validation loss", "nats per token"), _losses(facts)),
        "settings": _table(("setting", "value"), _settings(facts)),
        "recipe": _command(config, recipe) if recipe and not differences else "",
        "base": base,
        "base_code": _code(base),
    }


def _command(config: TrainingRunConfig, recipe: Recipe) -> str:
    return f"slimrl {config.command} @ {recipe.config_file} --seed {config.seed}"


def environments_of(facts: RunFacts) -> list[str]:
    """Return the names of the tasks that a run trained on. A user's own file is listed by name, without its
    directory."""
    config = facts.config
    if isinstance(config, RLConfig):
        return list(dict.fromkeys(env.id.rpartition("/")[2] for env in config.orchestrator.env))
    if isinstance(config, SFTConfig) and isinstance(config.data, ExpertDataConfig):
        return [config.data.env.id.rpartition("/")[2]]
    return ["conversations"]


def _about(facts: RunFacts, is_adapter: bool) -> str:
    config, base = facts.config, facts.base
    link = f"[{base.hub_name}](https://huggingface.co/{base.hub_name})" if base.hub_name else _code(base.name)
    what = "A LoRA adapter for" if is_adapter else "The weights of"
    how = f"{facts.step} steps of supervised fine-tuning"
    if isinstance(config, RLConfig):
        how = f"{facts.step} steps of reinforcement learning ({config.trainer.loss.type})"
        how = f"{config.warmup.max_steps} supervised steps and {how}" if config.warmup.max_steps else how
    tasks = ", ".join(map(_code, environments_of(facts)))
    note = f" ({base.note})" if base.note else ""
    return f"{what} {link}{note} after {how} on {tasks}, by slimrl {facts.versions.get('slimrl', 'from its sources')}."


def _rewards(facts: RunFacts) -> Iterator[tuple[str, ...]]:
    for mode in facts.stages[0].held_out if facts.stages else ():
        for stage in facts.stages:
            if estimate := stage.held_out.get(mode):
                yield mode, stage.name, f"{estimate.mean:.3f}", estimate.interval, str(estimate.num)


def _metrics(facts: RunFacts) -> Iterator[tuple[str, ...]]:
    """Yield the held-out metrics without intervals, each with its value at every stage."""
    names = {name for stage in facts.stages for name in stage.metrics if not NO_METRIC.fullmatch(name)}
    for name in sorted(names):
        values = [f"{stage.metrics[name]:.4g}" if name in stage.metrics else "" for stage in facts.stages]
        yield (_code(name.removeprefix("held_out/")), *values)


def _losses(facts: RunFacts) -> Iterator[tuple[str, ...]]:
    """Yield the first and the last loss of supervised fine-tuning, which has no other measure."""
    if losses := facts.series.get("sft/val_loss"):
        for step, value in [*zip(*losses, strict=True)][:: max(1, len(losses[0]) - 1)]:
            yield f"after step {step}", f"{value:.3f}"


def _settings(facts: RunFacts) -> Iterator[tuple[str, str]]:
    config, cost = facts.config, facts.cost
    yield "base model", _code(facts.base.hub_name or facts.base.name)
    if isinstance(config, RLConfig):
        yield from _settings_of_rl(config)
    if isinstance(config, SFTConfig):
        yield "batch size", str(config.batch_size)
        yield "learning rate", f"{config.optim.lr:g}, {config.schedule.type}"
    if config.model.lora.rank:
        yield "LoRA", f"rank {config.model.lora.rank}, alpha {config.model.lora.alpha:g}"
    yield "steps", f"{facts.step} of {config.max_steps}"
    yield "longest conversation", f"{config.seq_len} tokens"
    yield "seed", str(config.seed)
    if "duration_s" in cost:
        yield "time, evaluations included", f"{cost['duration_s'] / 60:.1f} min"
    for key, name in (("tokens_sampled", "tokens sampled"), ("tokens_trained", "tokens trained on")):
        if cost.get(key):
            yield name, f"{cost[key]:,.0f}"


def _settings_of_rl(config: RLConfig) -> Iterator[tuple[str, str]]:
    loss, episodes = config.trainer.loss.resolve(config.has_teacher), config.orchestrator
    for env in episodes.env:
        args = f" {_code(toml_literal(shareable(env.args)))}" if env.args else ""
        yield "environment", f"{_code(env.id.rpartition('/')[2])}{args}"
    parts = f"advantage {loss.advantage}, loss {loss.policy}, credit {loss.credit}"
    yield "algorithm", f"{config.trainer.loss.type}: {parts}"
    yield "rollouts per step", f"{episodes.batch_size}, {episodes.rollouts_per_example} per task"
    yield "sampling temperature", f"{episodes.sampling.temperature:g}"
    yield "learning rate", f"{config.trainer.optim.lr:g}, {config.trainer.schedule.type}"
    if (warm_up := config.warmup).max_steps:
        demonstrations = f"{warm_up.max_steps} steps of {warm_up.batch_size} demonstrations"
        yield "warm-up", f"{demonstrations}, learning rate {warm_up.optim.lr:g}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; empty without rows."""
    cells = [header, ["---"] * len(header), *rows]
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in cells]
    return "\n".join(lines) if len(lines) > 2 else ""


def _code(text: str) -> str:
    """Return any text as inline code of Markdown."""
    return f"`{' '.join(text.replace('`', chr(39)).split())}`"
