"""Implements `scripts/train.py` and `scripts/eval.py`, which run the commands `rl` and `eval` on `wiki-search`.

Both scripts have the same flags for pages, questions and judge. Defaults are read from `.env` or the environment
variables. A command's code is imported only after the settings are checked, so that help and error messages need not
wait for PyTorch.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from slimrl.config.reading.load import Resolved
from slimrl.config.run import EvalRunConfig, RLConfig
from slimrl.errors import UserError, install_hint
from slimrl.io.cache import say
from slimrl.io.files import replace_file, without_nan
from slimrl.io.run_dir import RunDir
from slimrl.launch.start import run_command
from slimrl.monitor.console import RunConsole
from slimrl.monitor.sinks import read_metrics
from slimrl.plugins import call
from slimrl_search.retrieval.prepare import GENERATED, Source, directory_of, find_generated
from slimrl_search.services.judges import DEFAULT_URL

FEW_PAGES = 10  # the number of generated pages with DEV=1
SEED = 0  # the seed of a generated corpus
STOP = ["</tool>", "</answer>"]
SEQ_LEN = 2048
NUM_HELD_OUT, NUM_EVALUATED = 20, 100  # fewer if there are few pages
PAGES_PER_QUESTION = 5  # pages per question of a held-out split, which has a tenth of up to 30 questions per ten pages


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number of 1 or more")
    return int(text)


# The flags of a script: the type, the default and the help of each.
Flags = dict[str, tuple[Callable[[str], Any], Any, str]]
TRAIN = """\
Train a model to search, by REINFORCE with a constant baseline of 0.5 and a judge's reward of 1 or 0: `slimrl rl` with
these settings. Whatever else is given goes to `slimrl rl`, as in --seed 3 or --output_dir RUN --resume. --dry-run shows
the settings. Without --judge_model answers are compared word by word."""
TRAIN_FLAGS: Flags = {
    "--num_samples": (_count, 3, "questions; a training step each"),
    "--num_epochs": (_count, 1, "times that each question is trained on"),
    "--num_rollouts": (_count, 2, "attempts at a question in a step"),
    "--max_turns": (_count, 3, "replies of the model to a question"),
    "--lr": (float, 1e-5, "learning rate"),
    "--max_new_tokens": (_count, 200, "tokens of a reply"),
    "--model_name": (str, "smollm2-135m", "a Hub id, a directory, a .gguf file"),
    "--live-plot": (bool, False, "draw RUN/live.png while it trains, and show it"),
}
EVAL = """\
Evaluate a model on questions that training never sees: `slimrl eval` with these settings. Whatever else is given goes
to `slimrl eval`, as in --temperatures '[0.0, 1.0]' or --output_dir RUN --resume. --dry-run shows the settings."""
EVAL_FLAGS: Flags = {
    "--model": (str, "smollm2-135m", "a Hub id, a directory such as RUN/weights/step_3"),
    "--split": (str, "test", "which questions: train, validation or test; training sees train's"),
    "--num_samples": (_count, argparse.SUPPRESS, f"questions (default: {NUM_EVALUATED}, or a fifth of the pages)"),
    "--max_turns": (_count, 10, "replies of the model to a question"),
    "--max_new_tokens": (_count, 200, "tokens of a reply"),
}
BASELINES = ["random", "expert"]


def new_source(environ: Mapping[str, str]) -> Source:
    """Return the default source: a new generated corpus. The corpus is small if DEV=1 is set."""
    return Source(GENERATED, FEW_PAGES if environ.get("DEV") == "1" else Source(GENERATED).num_pages, SEED)


def find_source(corpus: str, environ: Mapping[str, str]) -> Source:
    """Return the source of the pages. A generated corpus is the one in the data directory, or a new one: DEV=1 may have
    been set only for the build."""
    if corpus != GENERATED:
        return Source(corpus)
    new = new_source(environ)
    return find_generated(directory_of(new, environ.get("DATA_DIR", ""))) or new


def parse(
    name: str, about: str, flags: Flags, argv: Sequence[str], environ: Mapping[str, str]
) -> tuple[argparse.Namespace, list[str]]:
    """Parse the command line of a script with its own `flags` and the flags of both scripts. Return the options, and
    the remaining words, which are for slimrl's command."""
    parser = argparse.ArgumentParser(
        prog=name, description=about, allow_abbrev=False, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    common: Flags = {
        "--judge_model": (str, environ.get("JUDGE_MODEL", ""), "the judge, at $JUDGE_BASE_URL; $JUDGE_MODEL"),
        "--corpus": (str, GENERATED, "pages, as for setup_environment.py; generated ones are those in $DATA_DIR"),
        "--questions": (str, "", "questions on a corpus of one's own: .jsonl, .parquet, Hub"),
    }
    for flag, (kind, default, text) in (flags | common).items():
        how: dict[str, Any] = {"action": "store_true"} if kind is bool else {"type": kind}
        parser.add_argument(flag, default=default, help=text, **how)
    return parser.parse_known_args(argv)


def train(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run `scripts/train.py`: REINFORCE with one question and a few rollouts per step. Return the exit status."""
    options, more = parse("train.py", TRAIN, TRAIN_FLAGS, argv, environ)

    def start(resolved: Resolved[RLConfig]) -> int:
        check_extra()
        run_dir = Path(resolved.config.output_dir)
        live = []
        if options.live_plot:
            live.append(call("slimrl_search.scripts.live:LivePlot", run_dir, RunConsole().note))
        try:
            return int(call("slimrl.commands.rl:run_rl", resolved, live))
        finally:  # also after an interruption
            if RunDir(run_dir).metrics.exists():
                _write_metrics(RunDir(run_dir).metrics)

    # If a flag is given twice, the last one wins.
    return run_command(RLConfig, [*train_flags(options, environ), *more], start, environ)


def check_extra() -> None:
    """Raise UserError if the packages for search are missing, so that a run stops before a model is downloaded."""
    if not _is_installed("chromadb") or not _is_installed("sentence_transformers"):
        raise UserError(f"wiki-search needs the extra [search]: {install_hint('search')}.")


def train_flags(options: argparse.Namespace, environ: Mapping[str, str]) -> list[str]:
    """Return the command line of `rl` with the settings of `scripts/train.py`."""
    rollouts = options.num_rollouts
    source = find_source(options.corpus, environ)
    num_held_out = _num_questions(NUM_HELD_OUT, source)
    env = environment(options, environ, source, num_train=options.num_samples, num_test=num_held_out)
    settings = {
        "max_steps": options.num_samples * options.num_epochs,
        "seq_len": SEQ_LEN,
        "output_dir": f"runs/train_{datetime.now():%Y%m%d_%H%M%S}",
        "model.name": options.model_name,
        "orchestrator.env": json.dumps([env]),
        "orchestrator.batch_size": rollouts,
        "orchestrator.rollouts_per_example": rollouts,
        "orchestrator.max_turns": options.max_turns,
        "orchestrator.resample_factor": 1,
        "orchestrator.sampling.max_tokens": options.max_new_tokens,
        "orchestrator.sampling.stop": json.dumps(STOP),
        "trainer.loss.type": "reinforce",
        "trainer.optim.lr": options.lr,
        "eval.num_examples": num_held_out,
        "eval.temperatures": "[0.0]",
        "inference.max_slots": max(rollouts, NUM_HELD_OUT),
    }
    project, entity = (environ.get(f"WANDB_{name}", "") for name in ("PROJECT", "ENTITY"))
    if project and _is_installed("wandb"):
        settings |= {"wandb.project": project} | ({"wandb.entity": entity} if entity else {})
    elif project:
        say(
            f"WANDB_PROJECT is {project}, but the package wandb is not installed: metrics go to files alone. To log "
            f"there too: {install_hint('wandb')}."
        )
    return _words(settings)


def _words(settings: Mapping[str, object]) -> list[str]:
    return [word for key, value in settings.items() for word in (f"--{key}", str(value))]


def _is_installed(package: str) -> bool:
    """Return True if a package can be imported. A directory of the same name, such as W&B's `wandb`, is not a
    package."""
    found = find_spec(package)
    return found is not None and found.origin is not None


def evaluate(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run `scripts/eval.py`. Return the exit status."""
    options, more = parse("eval.py", EVAL, EVAL_FLAGS, argv, environ)
    source = find_source(options.corpus, environ)
    num_samples = vars(options).get("num_samples", _num_questions(NUM_EVALUATED, source))
    env = environment(options, environ, source, num_train=num_samples, num_test=num_samples)
    settings = {
        "env": json.dumps([env]),
        "split": options.split,
        "num_examples": num_samples,
        "baselines": json.dumps(BASELINES),
        "temperatures": "[0.0]",
        "sampling.max_tokens": options.max_new_tokens,
        "sampling.stop": json.dumps(STOP),
        "max_turns": options.max_turns,
        "seq_len": SEQ_LEN,
        "inference.max_slots": min(num_samples, 32),
        "output_dir": f"runs/eval_{datetime.now():%Y%m%d_%H%M%S}",
        "model.name": options.model,
    }

    def start(resolved: Resolved[EvalRunConfig]) -> int:
        check_extra()
        return int(call("slimrl.commands.eval:run_eval", resolved))

    return run_command(EvalRunConfig, [*_words(settings), *more], start, environ)


def _num_questions(most: int, source: Source) -> int:
    """Return the default number of held-out questions: at most `most`, and fewer if there are few pages."""
    return min(most, max(2, source.num_pages // PAGES_PER_QUESTION))


def environment(
    options: argparse.Namespace, environ: Mapping[str, str], source: Source, num_train: int, num_test: int
) -> dict[str, Any]:
    """Return the config section `[[env]]` of `wiki-search` with the pages of `source` and the chosen questions and
    judge."""
    args: dict[str, Any] = {"corpus": source.name}
    if options.questions:
        args["questions"] = options.questions
    if source.name == GENERATED:
        args |= {"num_pages": source.num_pages, "seed": source.seed, "num_train": num_train, "num_test": num_test}
    if data_dir := environ.get("DATA_DIR", ""):
        args["data_dir"] = data_dir
    if options.judge_model:
        args["judge"] = {"base_url": environ.get("JUDGE_BASE_URL") or DEFAULT_URL, "model": options.judge_model}
    return {"id": "wiki-search", "args": args}


def _write_metrics(lines: Path) -> None:
    """Write metrics.json beside metrics.jsonl: a list with one merged entry for each step; nan is written as null."""
    steps: dict[int, dict[str, float | None]] = {}
    for step, metrics in read_metrics(lines):
        steps.setdefault(step, {}).update(without_nan(metrics))
    content = [{"step": step, **metrics} for step, metrics in steps.items()]
    replace_file(lines.with_suffix(".json"), [json.dumps(content, indent=1, allow_nan=False).encode()])
