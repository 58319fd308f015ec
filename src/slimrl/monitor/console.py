"""The console of a run: a progress bar over the steps, notes above it, and bars for long jobs.

On a terminal the bars are live. In a pipe, a log file or CI, each step is one plain line without control characters.
The environment variable NO_COLOR is respected. The console is always passed as an argument, never global.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.segment import Segment
from rich.text import Text

from slimrl.errors import visible
from slimrl.monitor.metrics import select_held_out_rewards

PLAIN_WIDTH = 120
SPEEDS = ("perf/tokens_sampled_per_s", "perf/tokens_trained_per_s")  # the first one that is logged is shown
Clock = Callable[[], float]


class _Visible:
    """A wrapper of a rich renderable. All texts pass through `visible`, because a table may contain control characters
    from other programs."""

    def __init__(self, shown: RenderableType) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in console.render(self._shown, options):
            yield part if part.control else Segment(visible(part.text), part.style)


class RunConsole:
    """The console of a run, on a terminal or on another stream such as a file.

    >>> console = RunConsole()  # doctest: +SKIP
    >>> console.note("one process on the CPU, bfloat16")  # doctest: +SKIP
    >>> with Monitor([console.steps(100)]) as monitor: ...  # doctest: +SKIP
    """

    def __init__(self, stream: TextIO | None = None, clock: Clock = time.monotonic) -> None:
        stream = stream or sys.stdout
        self.clock = clock
        live = stream.isatty()
        # Set explicitly: with FORCE_COLOR in the environment, rich would draw bars in a CI log too.
        width = None if live else PLAIN_WIDTH
        self._rich = Console(file=stream, force_terminal=live, color_system="auto" if live else None, width=width)
        self.is_live = self._rich.is_interactive and not self._rich.is_dumb_terminal
        self.bars = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=10),
            MofNCompleteColumn(),
            TextColumn("{task.fields[info]}"),
            console=self._rich,
            refresh_per_second=4,
            transient=True,
            disable=not self.is_live,
        )
        self._noted: set[str] = set()  # texts that `note_once` has printed

    def note(self, text: str, style: str = "") -> None:
        """Print a line permanently above the bars. Markup of rich in `text` is printed unchanged."""
        encoding = self._rich.encoding
        # A character that the stream's encoding cannot represent must not stop the run.
        printable = visible(text).encode(encoding, "backslashreplace").decode(encoding)
        self._rich.print(Text(printable, style=style), soft_wrap=True)

    def note_once(self, text: str, style: str = "") -> None:
        """Print a line with `note`, unless this console has already printed the same line."""
        if text not in self._noted:
            self._noted.add(text)
            self.note(text, style)

    def show(self, renderable: RenderableType) -> None:
        """Print a rich table or panel. Without a terminal, omit colours and control characters."""
        self._rich.print(_Visible(renderable), soft_wrap=True)

    def steps(self, total: int, first_step: int = 0, headline: str = "reward/mean") -> "StepDisplay":
        """Return a sink that shows each step when it is logged. `headline` is the metric beside the bar."""
        return StepDisplay(self, total, first_step, headline)

    @contextmanager
    def progress(self, description: str, total: int) -> Iterator["Bar"]:
        """Context manager: show a progress bar for one long job, such as an evaluation. The bar is removed afterwards.

        >>> with console.progress("held-out evaluation", total=200) as bar:  # doctest: +SKIP
        ...     bar.advance()
        """
        bar = Bar(self, description, total)
        try:
            yield bar
        finally:
            bar.close()


class Bar:
    """The progress of one job: a bar on a terminal; on other streams, a line after each quarter of the job."""

    def __init__(self, console: RunConsole, description: str, total: int, done: int = 0) -> None:
        self._console, self._description, self._total = console, description, total
        self._first = self._completed = done
        self._started = console.clock()
        console.bars.start()
        self._task: TaskID | None = console.bars.add_task(visible(description), total=total, completed=done, info="")

    def advance(self, count: int = 1, info: str = "") -> None:
        """Add `count` to the completed work. `info` is a short text beside the bar, such as a loss."""
        before, self._completed = self._completed, self._completed + count
        text = " · ".join(part for part in (info, self.time_left(self._completed)) if part)
        self.show(self._completed, text)
        # Print a line after each quarter of the job.
        quarters = [done * 4 // max(1, self._total) for done in (before, self._completed)]
        if not self._console.is_live and quarters[1] > quarters[0]:
            self._console.note(f"{self._description}: {self._completed}/{self._total} · {text}")

    def show(self, completed: int, info: str) -> None:
        """Set the progress of a live bar and `info`, the text after the bar."""
        if self._task is not None:
            # rich reads words in square brackets as markup.
            self._console.bars.update(self._task, completed=completed, info=visible(escape(info)))

    def time_left(self, done: int) -> str:
        """Return the estimated time until the end of the job. If the job is complete, return the time that it took.
        Work of an earlier process is not counted."""
        spent = self._console.clock() - self._started
        left = spent / max(1, done - self._first) * (self._total - done)
        return f"{format_clock(left)} left" if done < self._total else format_clock(spent)

    def close(self) -> None:
        """Remove the bar from the display; a second call does nothing."""
        if self._task is not None:
            self._console.bars.remove_task(self._task)
            self._task = None
        # The display has its own thread, which must not outlive the last bar.
        if self._console.is_live and not self._console.bars.task_ids:
            self._console.bars.stop()


class StepDisplay:
    """A sink that shows a run's steps on a console. Steps are counted from 1. Results of evaluations are printed as
    notes. The bar advances only if the metrics include `headline`."""

    def __init__(self, console: RunConsole, total: int, first_step: int, headline: str) -> None:
        self._console, self._total, self._headline = console, total, headline
        self._last = ""
        self._bar = Bar(console, "training", total, done=first_step)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the metrics of a step."""
        if results := _results(metrics):
            when = f"after step {step}" if step else "before step 1"
            self._console.note(f"{when}: {' · '.join(results)}", style="bold")
        if drops := _failures(metrics):
            self._console.note(f"step {step + 1}: failed and dropped: {drops}", style="yellow")
        if self._headline not in metrics:
            return
        done = step + 1  # training metrics of the first step are logged as step 0
        name = self._headline.removesuffix("/mean").replace("/", " ")
        speed = [f"{metrics[name]:,.0f} tok/s" for name in SPEEDS if name in metrics][:1]
        info = " · ".join([f"{name} {metrics[self._headline]:.3f}", *speed, self._bar.time_left(done)])
        # Store the text for `close`, because the live bar disappears from the screen.
        self._last = f"step {done}/{self._total} · {info}"
        if not self._console.is_live:
            self._console.note(self._last)
        self._bar.show(done, info)

    def close(self, failed: bool = False) -> None:
        """Remove the bar and print its last state as a line."""
        self._bar.close()
        if self._console.is_live and self._last:
            self._console.note(self._last)
        self._last = ""


def _results(metrics: Mapping[str, float]) -> list[str]:
    rewards = select_held_out_rewards(metrics)
    labels = {name: f"held-out{name.removeprefix('held_out/reward').replace('_', ' ')}" for name in rewards}
    if "sft/val_loss" in metrics:
        labels["sft/val_loss"] = "validation loss"
    return [f"{label} {metrics[name]:.3f}" for name, label in labels.items()]


def _failures(metrics: Mapping[str, float]) -> str:
    # Rollouts that were dropped because their group has no gradient are not failures.
    reasons = {name.removeprefix("drop/"): count for name, count in metrics.items() if name.startswith("drop/")}
    return ", ".join(
        f"{count:.0f} x {reason}" for reason, count in reasons.items() if reason != "zero_signal" and count
    )


def format_clock(seconds: float) -> str:
    """Format a duration as minutes and seconds, with hours if needed.

    >>> format_clock(9.4), format_clock(59.6), format_clock(36000)
    ('0:09', '1:00', '10:00:00')
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
