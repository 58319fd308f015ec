"""The text of a model card below its metadata, section by section, in Markdown."""

import re
from collections.abc import Iterable, Iterator, Sequence

from slimrl.config.data import ExpertDataConfig
from slimrl.config.reading.write import toml_literal
from slimrl.config.run import RLConfig, SFTConfig
from slimrl_tools.curves.reference import recognise
from slimrl_tools.sharing.facts import RunFacts, Stage
from slimrl_tools.sharing.places import shareable

PICTURE = "training.png"
NO_METRIC = re.compile(r"held_out/(num|reward_.*)")  # the rewards have a table of their own
NOT_MEASURED = """\
## Not measured

- Anything but the tasks above: no general benchmark was run before or after, so what the model has forgotten is not
  known.
- Safety, bias and toxicity: nothing was tested, and nothing was trained towards them.
- Other seeds: these are the numbers of one run. The intervals are over its held-out tasks, and say nothing of what
  another seed would give.
- Other programs: the numbers are of slimrl's own engine. transformers and vLLM load the same weights, and round in
  other places.
"""
USE = """\
## Use

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

name = "{name}"  # or the directory that this file lies in
tokenizer, model = AutoTokenizer.from_pretrained(name), AutoModelForCausalLM.from_pretrained(name)
```
"""
USE_ADAPTER = """\
## Use

```python
from peft import AutoPeftModelForCausalLM

model = AutoPeftModelForCausalLM.from_pretrained("{name}")  # which loads {base} as well
```
"""
REPRODUCE = """\
## Reproduce

{recipe}With all settings of the run, saved as `config.toml`. Of paths on its machine the last part is left, and
`host.invalid` stands for its servers:

```bash
slimrl {command} @ config.toml
```

Versions: {versions}. On another machine, or with another number of threads, the numbers round otherwise.

<details><summary>config.toml</summary>

```toml
{settings}
```

</details>
"""


def card_body(facts: RunFacts, has_picture: bool, name: str, is_adapter: bool) -> str:
    """The card's text. `name` is that of the weights, on the Hub or elsewhere."""
    base = facts.base.hub_name or facts.base.name
    title = f"# {name.rpartition('/')[2]}\n\n{_about(facts, is_adapter)}\n"
    picture = [f"![The curves of its training]({PICTURE})\n"] if has_picture else []
    use = USE_ADAPTER.format(name=name, base=base) if is_adapter else USE.format(name=name)
    licence = facts.base.licence and f"That of the base model: {facts.base.licence}."
    return "\n".join(
        [
            *(title, *picture, "## Results\n", *_results(facts)),
            *("## Training\n", _table(("setting", "value"), _settings(facts)), use, _reproduction(facts), NOT_MEASURED),
            *("## Licence\n", licence or f"Not known here: see the page of {_code(base)} before you share this."),
        ]
    )  # fmt: skip


def environments_of(facts: RunFacts) -> list[str]:
    """What a run trained on. A file of one's own goes by its name, and not by its place."""
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


def _results(facts: RunFacts) -> Iterator[str]:
    if not facts.stages:
        yield from _losses(facts)
        return
    yield "Mean reward on held-out tasks, which were never trained on.\n"
    rows = [
        (mode, stage.name, f"{estimate.mean:.3f}", estimate.interval, str(estimate.num))
        for mode in facts.stages[0].held_out
        for stage in facts.stages
        if (estimate := stage.held_out.get(mode))
    ]
    yield _table(("decoding", "weights", "mean", "95% interval", "n"), rows)
    if not facts.evaluated:
        yield f"The weights of step {facts.step} themselves were not evaluated: these rows are of earlier ones.\n"
    names = sorted({name for stage in facts.stages for name in stage.metrics if not NO_METRIC.fullmatch(name)})
    if names:
        yield "<details><summary>Other held-out metrics, without intervals</summary>\n"
        header = ("metric", *(stage.name for stage in facts.stages))
        yield _table(header, [_metric_row(name, facts.stages) for name in names])
        yield "</details>\n"


def _losses(facts: RunFacts) -> Iterator[str]:
    """The results of supervised fine-tuning, whose only measure is a loss."""
    losses = facts.series.get("sft/val_loss")
    if losses is None:
        yield "These weights were not evaluated.\n"
        return
    steps, values = losses
    rows = [(f"after step {step}", f"{value:.3f}") for step, value in zip(steps, values, strict=True)]
    yield _table(("validation loss", "nats per token"), [rows[0], rows[-1]])


def _metric_row(name: str, stages: Sequence[Stage]) -> tuple[str, ...]:
    values = [f"{stage.metrics[name]:.4g}" if name in stage.metrics else "" for stage in stages]
    return (_code(name.removeprefix("held_out/")), *values)


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


def _reproduction(facts: RunFacts) -> str:
    config = facts.config
    found = recognise(config)
    recipe = ""
    if found and not found[1]:
        command = f"slimrl {config.command} @ {found[0].config_file} --seed {config.seed}"
        recipe = f"With slimrl's own recipe:\n\n```bash\n{command}\n```\n\n"
    return REPRODUCE.format(
        recipe=recipe,
        command=config.command,
        versions=", ".join(f"{name} {number}" for name, number in facts.versions.items()),
        settings=facts.settings.rstrip(),
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _code(text: str) -> str:
    """The text as code of Markdown, whatever is in it."""
    return f"`{' '.join(text.replace('`', chr(39)).split())}`"
