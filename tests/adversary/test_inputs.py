"""Settings, texts and models of others (F12, F14, F15): each is read, or refused in a line that may be printed."""

import io

import pytest
from rich.panel import Panel
from rich.table import Table

from slimrl.cli import run
from slimrl.errors import RolloutError, visible
from slimrl.monitor.console import RunConsole

# A colour, the clipboard, an 8-bit command, an order of letters, a deletion, a carriage return, what nobody sees.
ESCAPES = "\x1b[31m", "\x1b]52;c;aGk=\x07", "\x9b2J", "\u202egpj.exe", "a\u2066b", "\x7f\x08", "ok\rno", "l\u200br"


@pytest.mark.parametrize("text", ESCAPES)
def test_no_command_to_the_terminal_is_printed(text, capsys, tmp_path):
    file = tmp_path / "a.toml"
    file.write_text(f'"{text.encode("unicode_escape").decode()}" = 1\n'.replace("\\x", "\\u00"))
    for argv in ([text], ["rl", text], ["rl", f"--{text}", "1"], ["rl", "--max_steps", text], ["rl", "@", str(file)]):
        assert run(argv) == 2
    screen = io.StringIO()
    console = RunConsole(screen)
    console.note(text)
    console.show(Panel(text, title=text))
    table = Table(text, title=text)
    table.add_row(text)
    console.show(table)
    with console.progress(text, 1) as bar:
        bar.advance(info=text)
    shown = "".join(capsys.readouterr()) + screen.getvalue() + str(RolloutError("environment_error", text))
    assert text not in shown
    assert all(char.isprintable() or char == "\n" for char in shown)


def test_what_is_shown_is_bounded_and_stays_itself():
    for text in (*ESCAPES, "日本\u3000語\n\tx", "x" * 10**7):
        assert len(visible(text)) < 30_000
        assert visible(visible(text)) == visible(text) or len(text) > 20_000
    assert visible("日本\u3000語\n\t\xa0x") == "日本\u3000語\n\t\xa0x"
    assert len(RolloutError("environment_error", "x" * 10**7).detail) < 3000
