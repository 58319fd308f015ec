"""The module checks a running sandbox by programs, and prints a table. `scripts/test_environment.py` checks the tools,
`scripts/test_sandbox.py` the isolation."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from packages.sandbox.tests.attempts.exploits import BROKEN, Exploit, exploits
from slimrl.monitor.console import RunConsole
from slimrl.monitor.tables import Cells, for_terminal
from slimrl_sandbox.base import Execution, Sandbox
from slimrl_sandbox.client import HttpSandbox

TOOLS = ("search_pages", "view_sections", "read_section")
QUERIES = ("river", "a city", "who", "the", "1874", "Ångström ☃ \u05d0")
# What stands before each check of the tools.
FOUND = """\
pages = search_pages('city')
page_id = pages[0]['page_id']
section_id = view_sections(page_id)[0]['section_id']
def told(tool, argument):
    try: tool(argument)
    except ToolError as error: return str(error)
    return 'no error'
"""
# Expressions that are true of right tools, by the names of the checks.
RIGHT = {
    "search_pages finds up to ten pages": "0 < len(pages) <= 10",
    "a title finds its own page first": "all(search_pages(page['title'])[0] == page for page in pages)",
    "any query finds something": f"all(map(search_pages, {QUERIES!r}))",
    "view_sections lists ids of the page": "section_id.startswith(page_id + ':')",
    "read_section reads a section": "len(read_section(section_id)) > 0",
    "read_section reads a whole page": "read_section(section_id) in read_section(page_id + ':full')",
    "an empty query is told": "'empty' in told(search_pages, ' ')",
    "an unknown page is told the nearest": "'Did you mean `' + page_id + '`?' in told(view_sections, page_id + '_x')",
    "no page is told": "'there is no page' in told(view_sections, '')",
    "what is no id is told": "'no section id' in told(read_section, page_id.replace(':', ''))",
    "an unknown section is told the nearest": "'Did you mean `' + page_id in told(read_section, page_id + ':no_such')",
    "a section of an unknown page is told": "'there is no page' in told(read_section, 'no such page:x')",
}


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; `found` says what was seen, for the table."""

    name: str
    passed: bool
    found: str


def report(title: str, address: str, checks: Callable[[Sandbox], Awaitable[list[Check]]]) -> int:
    """Make the checks, print the table, and return the exit status: 0 if all passed, else 1. Raises UserError if no
    server answers."""

    async def make() -> list[Check]:
        async with HttpSandbox(address, os.environ.get("SANDBOX_TOKEN", "")) as sandbox:
            return await checks(sandbox)

    found, console = asyncio.run(make()), RunConsole()
    rows = [(check.name, "ok" if check.passed else "FAILED", check.found) for check in found]
    table = Cells(f"{title}, {address}", (("check", "", "seen"), *rows))
    console.show(for_terminal(table, console.is_live, num_left=3))
    failed = sum(not check.passed for check in found)
    console.note(f"{len(found) - failed} of {len(found)} passed", style="red" if failed else "green")
    return int(failed > 0)


async def check_tools(sandbox: Sandbox) -> list[Check]:
    """Check the three tools of wiki-search, with right and wrong arguments."""
    checks = []
    for name, expression in RIGHT.items():
        done = await sandbox.run(f"{FOUND}print({expression})")
        checks.append(Check(name, done.stdout == "True\n", last_line(done)))
    return [*checks, *await check_calls(sandbox)]


async def check_calls(sandbox: Sandbox) -> list[Check]:
    """Check that code in the sandbox can call the tools, made-up ones too, and handle their errors."""
    chain = (
        "row = search_pages('city')[0]\n"
        "section = view_sections(row['page_id'])[0]\n"
        "print(len(read_section(section['section_id'])) > 0)"
    )
    caught = "try:\n    view_sections('no such page')\nexcept Exception as error:\n    print('told:', error)"
    ran, told, raised, after = [
        await sandbox.run(code) for code in (chain, caught, "view_sections('no such page')", "print(6 * 7)")
    ]
    return [
        Check("code calls the tools one after the other", ran.stdout == "True\n", last_line(ran)),
        Check("its calls are recorded", [call.tool for call in ran.calls] == list(TOOLS), str(len(ran.calls))),
        Check("code can catch a tool's error", told.stdout.startswith("told: there is no page"), last_line(told)),
        Check("an error that is not caught is a traceback", "there is no page" in raised.error, last_line(raised)),
        Check("and the next program runs", after.stdout == "42\n", last_line(after)),
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
