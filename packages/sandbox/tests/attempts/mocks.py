"""The module serves made-up tools, so that a sandbox can be checked without a corpus, an index and a running server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slimrl.errors import UserError
from slimrl_sandbox.base import Tools

CHECKOUT = Path(__file__).parents[4]
PLACE = f"{__name__}:tools"
PAGE = "river"


def tools(_data_dir: Path) -> Tools:
    """Return the three tools of `wiki-search`, with made-up answers."""

    def view_sections(page_id: str) -> list[dict[str, str]]:
        if page_id != PAGE:
            raise ValueError(f"there is no page {page_id!r}")
        return [{"section_id": f"{page_id}:history", "section_name": "History"}]

    return {
        "search_pages": lambda query: [{"page_id": PAGE, "title": "Rivers"}],
        "view_sections": view_sections,
        "read_section": lambda section_id: f"The text of {section_id}: \u2603 \u05d0 <b>&amp;</b>",
    }


@contextmanager
def serve_mocks() -> Iterator[tuple[str, int]]:
    """Start a server with the tools of this module, which ends with the block, and give its address and its port.
    Raises UserError if it does not start, as where bubblewrap is missing."""
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
