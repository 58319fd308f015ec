import io

import pytest

from slimrl.monitor.console import RunConsole
from slimrl.monitor.sinks import Monitor


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


class Clock:
    """Every look at it takes a second."""

    def __init__(self):
        self.now = -1.0

    def __call__(self):
        self.now += 1.0
        return self.now


@pytest.fixture
def plain():
    stream = io.StringIO()
    return RunConsole(stream, Clock()), stream


@pytest.fixture
def terminal(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    return Terminal()


def run_three_steps(console, first_step=0):
    with Monitor([console.steps(first_step + 3, first_step)]) as monitor:
        for step in range(first_step, first_step + 3):
            monitor.log(step, {"reward/mean": step / 10, "perf/tokens_sampled_per_s": 1234.4})


def test_log_file_gets_one_plain_line_a_step(plain, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    console, stream = plain
    run_three_steps(console)
    assert stream.getvalue().splitlines() == [
        "step 1/3 · reward 0.000 · 1,234 tok/s · 0:02 left",
        "step 2/3 · reward 0.100 · 1,234 tok/s · 0:01 left",
        "step 3/3 · reward 0.200 · 1,234 tok/s · 0:03",
    ]


def test_an_evaluation_or_a_failure_is_a_line_of_its_own_and_not_a_step(plain):
    console, stream = plain
    with Monitor([console.steps(3)]) as monitor:
        monitor.log(0, {"held_out/reward_greedy": 0.25})
        monitor.log(2, {"held_out/reward_greedy": 0.5, "held_out/reward_greedy_low": 0.4, "held_out/num": 200})
        monitor.log(3, {"held_out/reward_sampled_0.7": 0.25, "sft/val_loss": 1.5, "drop/zero_signal": 8.0})
        monitor.log(4, {"drop/judge_timeout": 12.0, "drop/timeout": 3.0, "drop/zero_signal": 8.0})
    assert stream.getvalue().splitlines() == [
        "before step 1: held-out greedy 0.250",
        "after step 2: held-out greedy 0.500",
        "after step 3: held-out sampled 0.7 0.250 · validation loss 1.500",
        "step 5: failed and dropped: 12 x judge_timeout, 3 x timeout",
    ]


def test_long_lines_and_brackets_are_printed_as_they_are(plain):
    console, stream = plain
    text = "weights [bold]at[/bold] " + "x" * 300
    console.note(text)
    assert stream.getvalue() == text + "\n"


def test_a_log_that_cannot_take_a_character_does_not_end_the_run():
    raw = io.BytesIO()
    console = RunConsole(io.TextIOWrapper(raw, encoding="ascii", write_through=True), Clock())
    run_three_steps(console)
    console.note("lone \udc80")
    assert raw.getvalue().decode("ascii").count("\n") == 4


def test_a_long_job_says_so_at_each_quarter(plain):
    console, stream = plain
    with console.progress("evaluation", 8) as bar:
        for _ in range(8):
            bar.advance(info="[x]")
    lines = stream.getvalue().splitlines()
    assert [line.split(" · ")[0] for line in lines] == [f"evaluation: {done}/8" for done in (2, 4, 6, 8)]
    assert lines[0] == "evaluation: 2/8 · [x] · 0:06 left"


def test_terminal_gets_a_live_bar_and_its_last_state_stays(terminal):
    console = RunConsole(terminal, Clock())
    run_three_steps(console)
    output = terminal.getvalue()
    assert "training" in output
    assert output.count("\x1b[?25l") == output.count("\x1b[?25h") == 1  # the cursor is hidden and comes back
    assert output.splitlines()[-1] == "step 3/3 · reward 0.200 · 1,234 tok/s · 0:03"


def test_cursor_comes_back_when_a_run_crashes_inside_an_evaluation(terminal):
    console = RunConsole(terminal, Clock())

    def crash():
        with Monitor([console.steps(3)]), console.progress("evaluation [1]", 8) as bar:
            bar.advance(info="[/not markup]")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        crash()
    assert terminal.getvalue().count("\x1b[?25l") == terminal.getvalue().count("\x1b[?25h") == 1


@pytest.mark.parametrize(("name", "value", "absent"), [("NO_COLOR", "1", "\x1b[3"), ("TERM", "dumb", "\x1b")])
def test_a_terminal_without_colours_or_commands_gets_none(terminal, monkeypatch, name, value, absent):
    monkeypatch.setenv(name, value)
    run_three_steps(RunConsole(terminal, Clock()))
    assert absent not in terminal.getvalue()


def test_a_resumed_run_counts_only_its_own_steps(plain):
    console, stream = plain
    run_three_steps(console, first_step=50)
    assert "step 51/53 · reward 5.000 · 1,234 tok/s · 0:02 left" in stream.getvalue()
