"""A training run that several processes may share. They join, the first process opens the directory, and all agree on
the dtype."""

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from slimrl.config.model import ModelConfig
from slimrl.config.reading.load import Resolved
from slimrl.config.run import TrainingRunConfig
from slimrl.launch.open_dir import open_training_dir
from slimrl.launch.parts import restore_measured
from slimrl.launch.ranks import agree_on_dtype, join_ranks, run_on_first
from slimrl.monitor.console import RunConsole
from slimrl.trainer.parallel import Ranks

C = TypeVar("C", bound=TrainingRunConfig)


@dataclass(frozen=True, slots=True)
class SharedRun:
    """The processes that share a run (`ranks`), and the model's settings with this process's device and the common
    dtype."""

    ranks: Ranks
    model: ModelConfig


def console_of_rank() -> RunConsole:
    """Return a console that prints only in the first process of torchrun."""
    # Schedulers set RANK for unrelated processes, too.
    follows = "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK", "0") != "0"
    return RunConsole(io.StringIO()) if follows else RunConsole()


@contextmanager
def open_shared_run(
    resolved: Resolved[C], model: ModelConfig, console: RunConsole, gpus: Sequence[int] = ()
) -> Iterator[SharedRun]:
    """Context manager: join the processes of a run and open its directory; see `open_training_dir` and `join_ranks`."""
    config, output_dir = resolved.config, Path(resolved.config.output_dir)
    directory = open_training_dir(resolved, output_dir, config.resume, console.note)
    with ExitStack() as held:
        ranks, own = held.enter_context(join_ranks(os.environ, model, gpus))
        run_on_first(ranks, lambda: held.enter_context(directory))  # the others wait for it
        yield SharedRun(ranks, agree_on_dtype(restore_measured(own, output_dir, config.resume), ranks))
