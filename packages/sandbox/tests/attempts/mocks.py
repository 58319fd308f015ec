"""The module checks a sandbox with made-up tools, so that neither corpus nor index nor a running server is needed.

`python -m slimrl_sandbox --tools packages.sandbox.tests.attempts.mocks:tools` serves them, in the checkout.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from packages.sandbox.tests.attempts.audit import Check, last_line
from slimrl.errors import UserError
from slimrl_sandbox.base import Execution, Sandbox, Tools

CHECKOUT = Path(__file__).parents[4]
PLACE = f"{__name__}:tools"
PAGES = {"river": "Rivers", "city_of_glass": "City of glass"}


def tools(_data_dir: Path) -> Tools:
    """The three tools of `wiki-search`, with answers that are made up."""
    return {"search_pages": search_pages, "view_sections": view_sections, "read_section": read_section}


def search_pages(query: str) -> list[dict[str, Any]]:
    """Find the two pages, whatever the query is."""
    return [{"page_id": page_id, "title": title} for page_id, title in PAGES.items()]


def view_sections(page_id: str) -> list[dict[str, Any]]:
    """List the one section of a page."""
    if page_id not in PAGES:
        raise ValueError(f"there is no page {page_id!r}")
    return [{"section_id": f"{page_id}:history", "section_name": "History"}]


def read_section(section_id: str) -> str:
    """Read a section, whose text repeats its id."""
    return f"The text of {section_id}: \u2603 \u05d0 <b>&amp;</b>"


@contextmanager
def serve_mocks() -> Iterator[tuple[str, int]]:
    """The address and the port of a server of its own with the tools of this module, which ends with the block. Raises
    UserError if it does not start, as where bubblewrap is missing."""
    command = [sys.executable, "-m", "slimrl_sandbox", "--port", "0", "--tools", PLACE]
    environment = {**os.environ, "SANDBOX_TOKEN": ""}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().rpartition(" ")[2].strip()
            if not address:
                raise UserError("the sandbox's server did not start; what it said stands above.")
            yield address, int(address.rpartition(":")[2])
        finally:
            process.terminate()


async def check_calls(sandbox: Sandbox) -> list[Check]:
    """The checks that code can call the tools: what it gets, what it is told, and what is recorded of it."""
    chain = "row = search_pages('x')[1]\nprint(read_section(view_sections(row['page_id'])[0]['section_id']))"
    caught = "try:\n    view_sections('nowhere')\nexcept Exception as error:\n    print('told:', error)"
    odd = 'a \u2603 "quoted"\n\' line'
    ran, told, raised, echoed, unknown = [
        await sandbox.run(code)
        for code in (chain, caught, "view_sections('nowhere')", f"print(read_section({odd!r}))", "delete_page('river')")
    ]
    called, text = [call.tool for call in ran.calls], read_section("city_of_glass:history")
    return [
        _check("code calls the tools one after the other", ran, ran.stdout == f"{text}\n"),
        _check("its calls are recorded", ran, called == ["search_pages", "view_sections", "read_section"], str(called)),
        _check("an argument arrives as it was sent", echoed, echoed.stdout == f"{read_section(odd)}\n"),
        _check("code can catch a tool's error", told, told.stdout.startswith("told: there is no page 'nowhere'")),
        _check("an error that is not caught is a traceback", raised, "there is no page" in raised.error),
        _check("there is no other tool", unknown, "NameError" in unknown.error),
    ]


def _check(name: str, execution: Execution, passed: bool, found: str = "") -> Check:
    return Check(name, passed, found or last_line(execution))
