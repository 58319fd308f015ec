"""The module checks a running sandbox server over HTTP and prints a table. `scripts/test_environment.py` checks the
tools, `scripts/test_sandbox.py` the isolation."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rich import box
from rich.table import Table

from packages.sandbox.tests.attempts.exploits import BROKEN, Exploit, exploits
from slimrl.errors import UserError
from slimrl.monitor.console import RunConsole
from slimrl_sandbox.base import Execution, Sandbox
from slimrl_sandbox.client import HttpSandbox, Reply

TOOLS = ("search_pages", "view_sections", "read_section")
HEALTH_S = 10.0
QUERIES = ("river", "a city", "who", "the", "1874", "Ångström ☃ \u05d0")


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; `found` says what was seen, for the table."""

    name: str
    passed: bool
    found: str


class Client(HttpSandbox):
    """A client of all that a sandbox's server answers."""

    async def is_up(self) -> bool:
        """Return True if a sandbox's server answers at the address."""
        try:
            found = await self.send("GET", "/health", within_s=HEALTH_S)
        except UserError:  # nobody, or somebody else, who speaks no JSON
            return False
        return isinstance(found, dict) and found.get("status") == "ok"

    async def tools(self) -> list[str]:
        """Return the names of the server's tools."""
        return [tool["name"] for tool in (await self.send("GET", "/tools"))["tools"]]

    async def call(self, name: str, argument: str) -> Reply:
        """Call one tool and return `{"result": ...}`, or `{"error": text}` if it failed."""
        return await self.send("POST", f"/tools/{name}", {"argument": argument})


def is_up(address: str) -> bool:
    """Whether a sandbox's server answers at the address."""

    async def ask() -> bool:
        async with Client(address) as sandbox:
            return await sandbox.is_up()

    return asyncio.run(ask())


def report(title: str, address: str, checks: Callable[[Client], Awaitable[list[Check]]], token: str = "") -> int:
    """Make the checks, print the table, and return the exit status: 0 if all passed, else 1. Raises UserError if no
    server answers."""

    async def make() -> list[Check]:
        async with Client(address, token) as sandbox:
            return await checks(sandbox)

    found, console = asyncio.run(make()), RunConsole()
    table = Table(box=box.ROUNDED if console.is_live else box.ASCII2, title=f"{title}, {address}", title_justify="left")
    for header in ("check", "", "seen"):
        table.add_column(header, overflow="fold")
    for check in found:
        table.add_row(
            check.name, "ok" if check.passed else "FAILED", check.found, style="" if check.passed else "bold red"
        )
    console.show(table)
    failed = sum(not check.passed for check in found)
    console.note(f"{len(found) - failed} of {len(found)} passed", style="red" if failed else "green")
    return int(failed > 0)


async def check_tools(sandbox: Client) -> list[Check]:
    """Check the tools: each is called over HTTP, with wrong arguments, and from code in the sandbox."""
    names = await sandbox.tools()
    checks = [Check("the server has the three tools", set(TOOLS) <= set(names), ", ".join(names) or "none")]
    if not checks[0].passed:
        return [*checks, Check("tools", False, "start it by scripts/run_environment.py, which gives it its tools")]
    # If a call fails, "?" takes the place of its result: later checks then fail with a reason instead of raising.
    pages = (await sandbox.call("search_pages", "city")).get("result") or [{"page_id": "?", "title": "?"}]
    page_id, title = pages[0]["page_id"], pages[0]["title"]
    sections = (await sandbox.call("view_sections", page_id)).get("result") or [{"section_id": "?"}]
    section_id = sections[0]["section_id"]
    text = (await sandbox.call("read_section", section_id)).get("result", "")
    whole = (await sandbox.call("read_section", f"{page_id}:full")).get("result", "")
    found = [(await sandbox.call("search_pages", page["title"])).get("result", []) for page in pages]
    first = sum(bool(rows) and rows[0]["page_id"] == page["page_id"] for rows, page in zip(found, pages, strict=True))
    vague = [(await sandbox.call("search_pages", query)).get("result", []) for query in QUERIES]
    checks += [
        Check("search_pages finds up to ten pages", 0 < len(pages) <= 10, f"{len(pages)}, the first {title!r}"),
        Check("a title finds its own page first", first == len(pages), f"{first} of {len(pages)}"),
        Check("any query finds something", all(vague), f"{sum(map(bool, vague))} of {len(QUERIES)}"),
        Check("view_sections lists ids of the page", section_id.startswith(f"{page_id}:"), section_id),
        Check("read_section reads a section", isinstance(text, str) and len(text) > 0, f"{text!r:.60}"),
        Check("read_section reads a whole page", text in whole and len(whole) >= len(text), f"{len(whole)} characters"),
    ]
    return [*checks, *await _mistakes(sandbox, page_id), *await check_calls(sandbox, page_id)]


async def _mistakes(sandbox: Client, page_id: str) -> list[Check]:
    """Check that a wrong argument is answered by an error that says what to do."""
    cases = (  # tool, argument, what its error must say
        ("search_pages", " ", "empty"),
        ("view_sections", f"{page_id}_x", f"Did you mean `{page_id}`?"),
        ("view_sections", "", "there is no page"),
        ("read_section", page_id.replace(":", ""), "no section id"),
        ("read_section", f"{page_id}:no_such_section", f"Did you mean `{page_id}:"),
        ("read_section", "no such page:x", "there is no page"),
    )
    checks = []
    for tool, argument, must in cases:
        said = (await sandbox.call(tool, argument)).get("error", "no error")
        checks.append(Check(f"{tool}({json.dumps(argument)}) is told", must in said, f"{said:.100}"))
    return checks


async def check_calls(sandbox: Sandbox, page_id: str) -> list[Check]:
    """Check that code in the sandbox can call the tools, made-up ones too, and handle their errors."""
    chain = (
        "row = search_pages('city')[0]\n"
        "section = view_sections(row['page_id'])[0]\n"
        "print(len(read_section(section['section_id'])) > 0)"
    )
    caught = "try:\n    view_sections('no such page')\nexcept Exception as error:\n    print('told:', error)"
    escaping = "view_sections('no such page')"
    ran, told, raised = [await sandbox.run(code) for code in (chain, caught, escaping)]
    after = await sandbox.run(f"print(view_sections({page_id!r}) != [])")
    return [
        Check("code calls the tools one after the other", ran.stdout == "True\n", last_line(ran)),
        Check("its calls are recorded", [call.tool for call in ran.calls] == list(TOOLS), str(len(ran.calls))),
        Check("code can catch a tool's error", told.stdout.startswith("told: there is no page"), last_line(told)),
        Check("an error that is not caught is a traceback", "there is no page" in raised.error, last_line(raised)),
        Check("and the next program runs", after.stdout == "True\n", last_line(after)),
    ]


async def check_isolation(sandbox: Sandbox, port: int) -> list[Check]:
    """Check the isolation: each exploit must fail, and an ordinary program must run after it."""
    return [await run_exploit(sandbox, exploit) for exploit in exploits(port)]


async def run_exploit(sandbox: Sandbox, exploit: Exploit) -> Check:
    """Check one exploit; it passes if the exploit fails and the sandbox still works."""
    timeout_s = 2.0 if exploit.ends_with == "timeout_s" else 20.0
    execution = await sandbox.run(exploit.code, timeout_s=timeout_s)
    printed = execution.stdout
    if exploit.later:
        printed += (await sandbox.run(exploit.later, timeout_s=timeout_s)).stdout
    # An exploit may also break the server for the next program.
    after = await sandbox.run("print(6 * 7)", timeout_s=timeout_s)
    held = BROKEN not in printed and exploit.ends_with in execution.error
    if after.stdout != "42\n":
        return Check(exploit.name, False, f"afterwards the server was not itself: {last_line(after)}")
    return Check(exploit.name, held, f"{last_line(execution)}, {execution.duration_s:.1f} s")


def last_line(execution: Execution) -> str:
    """The last line of the error or, without one, of the output."""
    ending = (execution.error.strip() or execution.stdout.strip()).splitlines()[-1:] or ["nothing"]
    return f"{ending[0]:.100}"
