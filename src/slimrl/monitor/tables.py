"""Renders tables of texts for the terminal and as Markdown. This module does not import PyTorch."""

from dataclasses import dataclass

from rich import box
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Cells:
    """A table of texts. Its first row is the header."""

    title: str
    rows: tuple[tuple[str, ...], ...]


def empty_table(title: str, live: bool, show_header: bool = True) -> Table:
    """Return a rich table without columns. The frame is ASCII if `live` is false."""
    frame = box.ROUNDED if live else box.ASCII2
    return Table(box=frame, title=title, title_style="bold", title_justify="left", show_header=show_header)


def for_terminal(cells: Cells, live: bool, num_left: int = 1) -> Table:
    """Convert `cells` to a rich table, whose first `num_left` columns are left-aligned. The frame is ASCII if `live` is
    false."""
    table = empty_table(cells.title, live)
    for number, header in enumerate(cells.rows[0]):
        table.add_column(header, justify="left" if number < num_left else "right", overflow="fold")
    for row in cells.rows[1:]:
        table.add_row(*row)
    return table


def as_markdown(cells: Cells) -> str:
    """Return the table as Markdown, below its title."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in cells.rows]
    rule = ["---", *("---:" for _ in escaped[0][1:])]
    lines = (f"| {' | '.join(row)} |" for row in (escaped[0], rule, *escaped[1:]))
    return "\n".join([f"{cells.title}:", "", *lines, ""])
