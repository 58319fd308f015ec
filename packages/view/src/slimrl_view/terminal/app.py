"""The screens of the viewer on a terminal, one behind the other: steps, the groups of a step, the rollouts of a group.

Enter goes on, Escape back, `q` ends. Everything on them is an answer of `api.py`, as on the page.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from rich.text import Text

from slimrl.errors import UserError, install_hint, visible
from slimrl_view.api import Api
from slimrl_view.indexer import Run
from slimrl_view.runs import TRAIN
from slimrl_view.terminal.tokens import SIGNED, conversation, legend

try:
    from textual.app import App, ComposeResult
    from textual.binding import Binding, BindingType
    from textual.containers import Horizontal, Vertical, VerticalScroll
    from textual.screen import Screen
    from textual.widgets import DataTable, Footer, Label, Sparkline, Static
except ModuleNotFoundError as error:
    raise UserError(
        f"--terminal needs the package {error.name}, which is not installed. Install the extra: "
        f"{install_hint('terminal')}. Without the flag the page opens in a browser."
    ) from None

POLL_S = 2.0
MAX_GROUPS = 5000
CURVES = ("reward/mean", "loss/entropy", "rollout/tokens_sampled_mean", "guard/mismatch_kl")
Json = Mapping[str, Any]


def show(runs: Sequence[Run]) -> None:
    """Show the runs until the user quits. Raises UserError if there is no terminal to show them on."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(
            "--terminal needs a terminal, and input or output is none here. `--export DIR` writes the same as a page."
        )
    Viewer(Api(runs), [run.directory.id for run in runs]).run()


class Viewer(App[None]):
    """The application: one run at a time, `n` for the next."""

    CSS = """
    #curves { height: 5; }
    #curves Vertical { width: 1fr; height: 5; padding: 0 1; }
    #curves Sparkline { height: 3; }
    DataTable { height: 1fr; }
    #rollouts { height: 12; }
    #head, #legend { height: 1; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "quit", "quit"), Binding("n", "next_run", "next run")]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, api: Api, names: Sequence[str]) -> None:
        super().__init__()
        self._api = api
        self._names = names
        self._at = 0

    @property
    def run_name(self) -> str:
        """The run that is shown."""
        return self._names[self._at]

    def on_mount(self) -> None:
        """Begin with the steps of the first run."""
        self.push_screen(Steps())

    def ask(self, what: str, **query: Any) -> Any:
        """The answer to a question about the run that is shown."""
        return self._api.answer(f"/api/runs/{quote(self.run_name)}/{what}", {k: str(v) for k, v in query.items()})

    def action_next_run(self) -> None:
        """Show the next run from its steps on."""
        self._at = (self._at + 1) % len(self._names)
        while len(self.screen_stack) > 2:  # the lowest is Textual's own
            self.pop_screen()
        self.switch_screen(Steps())


class _Screen(Screen[None]):
    """A screen that goes back at Escape."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "back")]

    @property
    def viewer(self) -> Viewer:
        """The application."""
        assert isinstance(self.app, Viewer)
        return self.app

    def action_back(self) -> None:
        """Return to the screen before; the first one stays."""
        if len(self.app.screen_stack) > 2:
            self.app.pop_screen()


class Steps(_Screen):
    """The steps of a run and its evaluations, below some curves. It follows a run that goes on."""

    def compose(self) -> ComposeResult:
        """The widgets of the screen."""
        yield Label(id="head", markup=False)
        with Horizontal(id="curves"):
            for number, name in enumerate(CURVES):
                with Vertical():
                    yield Label(name, id=f"name-{number}", markup=False)
                    yield Sparkline([], id=f"curve-{number}")
        yield DataTable(id="steps", cursor_type="row")
        yield Footer()

    def on_mount(self) -> None:
        """Fill the table, and again as often as there may be news."""
        table = self.query_one("#steps", DataTable)
        table.add_columns("rollouts of", *CURVES)
        self._shown: list[str] = []
        self.refresh_data()
        self.set_interval(POLL_S, self.refresh_data)

    def refresh_data(self) -> None:
        """Show what is new."""
        series, files = self.viewer.ask("metrics")["series"], self.viewer.ask("files")
        for number, name in enumerate(CURVES):
            values = [value for _, value in series.get(name, ()) if value is not None]
            self.query_one(f"#curve-{number}", Sparkline).data = values
            last = f" {values[-1]:.4g}" if values else ""
            self.query_one(f"#name-{number}", Label).update(f"{name}{last}")
        steps = len(files["train"]["steps"])
        self.query_one("#head", Label).update(visible(f"{self.viewer.run_name}: {steps} steps with rollouts"))
        rows = [(f"{TRAIN}:{step}", f"step {step}", step) for step in reversed(files["train"]["steps"])]
        rows += [(f"held_out/{one['name']}", one["label"], None) for one in files["held_out"]]
        if [key for key, *_ in rows] != self._shown:
            self._fill(rows, {name: dict(series.get(name, ())) for name in CURVES})

    def _fill(self, rows: Sequence[tuple[str, str, int | None]], values: Mapping[str, Mapping[int, float]]) -> None:
        table = self.query_one("#steps", DataTable)
        chosen = self._shown[table.cursor_row] if self._shown else ""
        table.clear()
        for key, label, step in rows:
            numbers = [None if step is None else values[name].get(step) for name in CURVES]
            cells = ["" if number is None else f"{number:.4g}" for number in numbers]
            table.add_row(*_plain(label, *cells), key=key)
        self._shown = [key for key, *_ in rows]
        if chosen in self._shown:
            table.move_cursor(row=self._shown.index(chosen))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show the groups of the step or evaluation."""
        self.app.push_screen(Groups(str(event.row_key.value)))


class Groups(_Screen):
    """The groups of a step, or of an evaluation, those that differ most within themselves first."""

    def __init__(self, key: str) -> None:
        super().__init__()
        name, _, step = key.partition(":")
        self._file = name
        self._where = [{"field": "step", "op": "=", "value": int(step)}] if step else []

    def compose(self) -> ComposeResult:
        """The widgets of the screen."""
        yield Label(id="head", markup=False)
        yield DataTable(id="groups", cursor_type="row")
        yield Footer()

    def on_mount(self) -> None:
        """Fill the table."""
        asked = {"where": json.dumps(self._where), "file": self._file, "sort": "-std", "limit": MAX_GROUPS}
        answer = self.viewer.ask("groups", **asked)
        self.query_one("#head", Label).update(f"{self.viewer.run_name}: {answer['matched']} groups")
        table = self.query_one("#groups", DataTable)
        table.add_columns("task", "mean", "std", "rewards", "dropped", "")
        for group in answer["groups"]:
            rewards = " ".join("-" if reward is None else f"{reward:.2f}" for reward in group["rewards"])
            mean, std = ("" if group[name] is None else f"{group[name]:.3f}" for name in ("mean", "std"))
            mark = "no signal" if group["zero_signal"] else ""
            cells = (group["task"][:60], mean, std, rewards, str(group["dropped"] or ""), mark)
            table.add_row(*_plain(*cells), key=group["group"])

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show the rollouts of the group."""
        self.app.push_screen(Group(str(event.row_key.value), self._file))


class Group(_Screen):
    """The rollouts of a group, and below them the tokens of the one under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("c", "colour", "colour by the next statistic")]

    def __init__(self, group: str, file: str) -> None:
        super().__init__()
        self._group = group
        self._file = file
        self._rollout: Json | None = None
        self._colours = [*SIGNED]

    def compose(self) -> ComposeResult:
        """The widgets of the screen."""
        yield Label(id="head", markup=False)
        yield DataTable(id="rollouts", cursor_type="row")
        yield Label(id="legend", markup=False)
        with VerticalScroll():
            yield Static(id="tokens")
        yield Footer()

    def on_mount(self) -> None:
        """Fill the table."""
        rows = self.viewer.ask("group", group=self._group, file=self._file)["rows"]
        self.query_one("#head", Label).update(visible(f"{self.viewer.run_name}: {self._group}"))
        table = self.query_one("#rollouts", DataTable)
        table.add_columns("reward", "advantage", "turns", "tokens", "calls", "stop", "dropped", "last reply")
        for row in rows:
            numbers = ("" if row[name] is None else f"{row[name]:.3f}" for name in ("reward", "advantage"))
            counts = (str(row[name]) for name in ("turns", "tokens", "tool_calls"))
            texts = (row[name].replace("\n", " ") for name in ("stop", "drop", "excerpt"))
            table.add_row(*_plain(*numbers, *counts, *texts), key=row["key"])

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Show the tokens of the rollout under the cursor."""
        if event.row_key is not None and event.row_key.value is not None:
            self._rollout = self.viewer.ask("rollout", key=event.row_key.value)
            self._draw()

    def action_colour(self) -> None:
        """Colour by the next statistic that was recorded."""
        self._colours = [*self._colours[1:], self._colours[0]]
        self._draw()

    def _draw(self) -> None:
        if self._rollout is not None:
            self.query_one("#legend", Label).update(legend(self._rollout, self._colours[0]))
            self.query_one("#tokens", Static).update(conversation(self._rollout, self._colours[0]))


def _plain(*texts: str) -> list[Text]:
    """The cells of a row. A plain `str` would be read as markup, whoever wrote it."""
    return [Text(visible(text)) for text in texts]
