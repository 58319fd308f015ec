"""A command waits for another program (docs/waits.md). Whether that is silent, dies, or is stopped by a signal, the
command ends by itself or within ten seconds of Ctrl-C, without a traceback, and leaves no process."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import standing_still
from tests.commands.test_rl import rl_flags
from tests.commands.waiting import all_ways, evaluated, of_rows, standing_server, waiting

ENVIRONMENT = """
import os
from pathlib import Path
from slimrl.types import Task, Turn
from tests.commands.standing_still import stand_still

def at(place):
    if os.environ["PLACE"] == place:
        stand_still(os.environ["WAY"], Path(os.environ["ASKED"]))

at("import")

class Episode:
    async def start(self):
        at("start")
        return [{"role": "user", "content": "Say a."}]
    async def step(self, reply):
        at("step")
        return Turn(done=True)
    async def close(self):
        at("close")

class Tasks:
    scripts = {}
    def tasks(self, split):
        at("tasks")
        return [Task(f"{split}-{number}", {}) for number in range(20)]
    def environment(self, task):
        return Episode()
"""


def taught(model: Path, place: Path, address: str) -> list[str]:
    teacher = ["--teacher.type", "server", "--teacher.base_url", f"{address}/v1", "--teacher.model", "m"]
    weights = ["--trainer.loss.teacher_tau", "0.5", "--trainer.loss.student_tau", "0.5"]
    return rl_flags(model, place / "out", "--warmup.max_steps", "0", *teacher, *weights)


SERVERS: dict[str, Callable[[Path, Path, str], list[str]]] = {
    "teacher": taught,
    "judge": lambda model, place, address: of_rows(model, place, f'judge={{base_url="{address}/v1", model="m"}}'),
    "tools": lambda model, place, address: of_rows(model, place, f'tools=[{{mcp="{address}/mcp"}}]'),
    "hub": lambda model, place, address: rl_flags(Path("somebody/model"), place / "out"),
}


@pytest.mark.parametrize(("name", "way"), all_ways([*SERVERS], "judge"))
def test_a_server_that_stands_still(name: str, way: str, tiny_dir: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    with standing_server(way, asked) as address:
        hub = {"HF_ENDPOINT": address, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path)} if name == "hub" else {}
        with waiting(SERVERS[name](tiny_dir, tmp_path, address), tmp_path, **hub) as command:
            command.until(asked.exists)
            command.ends(way)


@pytest.mark.parametrize(("place", "way"), all_ways(["import", "tasks", "start", "step", "close"], "step"))
def test_code_of_an_environment_that_stands_still(place: str, way: str, tiny_dir: Path, tmp_path: Path) -> None:
    file, asked = tmp_path / "standing.py", tmp_path / "asked"
    file.write_text(ENVIRONMENT, encoding="utf-8")
    words = evaluated(tiny_dir, tmp_path, f'[{{id="{file}:Tasks"}}]')
    with waiting(words, tmp_path, PLACE=place, WAY=way, ASKED=str(asked)) as command:
        command.until(asked.exists)
        command.ends(way)


@pytest.mark.parametrize(("name", "way"), all_ways(["tools", "compiler"], "tools"))
def test_a_program_that_stands_still(name: str, way: str, tiny_dir: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    program = f"{sys.executable} {standing_still.__file__} {way} {asked}"
    if name == "tools":
        words, variables = of_rows(tiny_dir, tmp_path, f'tools=[{{mcp="{program}"}}]'), {}
    else:
        words = evaluated(tiny_dir, tmp_path, '[{id="reverse-text"}]')
        variables = {"CXX": program, "SLIMRL_CACHE": str(tmp_path / "cache")}
    with waiting(words, tmp_path, **variables) as command:
        command.until(asked.exists)
        command.ends(way)
