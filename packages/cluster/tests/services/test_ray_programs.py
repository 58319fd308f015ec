"""Programs on Ray's nodes, with a stand-in for Ray: each of its answers and errors has a result."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slimrl.errors import UserError
from slimrl_cluster.services import ray_programs
from slimrl_cluster.services.programs import End, Needs
from slimrl_cluster.services.ray_cluster import Members, import_ray
from slimrl_cluster.services.ray_host import ProgramHost
from slimrl_cluster.services.ray_programs import RayProgram, RayPrograms, RayRanks

COMMAND = ["python", "-m", "slimrl", "inference"]
HERE = 4711, "10.0.0.2"  # the answer of a host that has started its program
LOST = "was lost, with its node or with Ray's actor"


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        super().__init__(f"ray::start()\n{cause}")
        self.cause = cause


class ActorDiedError(RayError):
    pass


class ActorUnavailableError(RayError):
    pass


class Asked:
    """A question to an actor, without an answer at first."""

    def __init__(self, method: str, *words: Any) -> None:
        self.method, self.words, self.answers = method, words, list[Any]()


class Actor:
    """An actor; all questions to it are kept, the newest last."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options, self.asked, self.is_killed = options, list[Asked](), False

    def __getattr__(self, method: str) -> Any:
        def remote(*words: Any) -> Asked:
            self.asked.append(Asked(method, *words))
            return self.asked[-1]

        return SimpleNamespace(remote=remote)

    def reply(self, answer: Any) -> None:
        """Answer the newest question."""
        self.asked[-1].answers.append(answer)


class FakeRay:
    """The functions of the package `ray` that are used."""

    exceptions = SimpleNamespace(
        RayError=RayError, RayTaskError=RayTaskError, ActorUnavailableError=ActorUnavailableError
    )

    def __init__(self) -> None:
        self.actors: list[Actor] = []
        self.groups: list[SimpleNamespace] = []
        self.removed: list[Any] = []
        self.timeouts: list[float | None] = []
        self.resources = {"CPU": 8.0}
        self.is_shut_down = False
        self.stop_answer: Any = End(-15, "was ended")
        strategies = SimpleNamespace(PlacementGroupSchedulingStrategy=lambda group, place: (group, place))
        self.util = SimpleNamespace(
            placement_group=self._group, remove_placement_group=self.removed.append, scheduling_strategies=strategies
        )

    def wait(self, asked: list[Asked], timeout: float) -> tuple[list[Asked], list[Asked]]:
        assert timeout == 0
        return (asked, []) if asked[0].answers else ([], asked)

    def get(self, asked: Asked, timeout: float | None = None) -> Any:
        self.timeouts.append(timeout)
        answer = self.stop_answer if asked.method == "stop" else asked.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self, actor: Actor) -> None:
        actor.is_killed = True

    def remote(self, kind: type) -> Any:
        def make(options: dict[str, Any]) -> Actor:
            self.actors.append(Actor(options))
            return self.actors[-1]

        return SimpleNamespace(options=lambda **options: SimpleNamespace(remote=lambda *words: make(options)))

    def cluster_resources(self) -> dict[str, float]:
        return self.resources

    def nodes(self) -> list[dict[str, bool]]:
        return [{"Alive": True}, {"Alive": False}, {"Alive": True}]

    def shutdown(self) -> None:
        self.is_shut_down = True

    def _group(self, bundles: list[dict[str, float]], strategy: str) -> SimpleNamespace:
        self.groups.append(SimpleNamespace(bundles=bundles, strategy=strategy))
        return self.groups[-1]


Made = tuple[RayPrograms, FakeRay, list[str]]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Programs on a cluster, the cluster, and the notes."""
    ray, notes, members = FakeRay(), list[str](), Members()
    members.announce("sampler-0", {"part": "inference"})

    def all_members() -> Asked:
        asked = Asked("all")
        asked.answers.append(members.all())
        return asked

    actor = SimpleNamespace(remove=SimpleNamespace(remote=members.remove), all=SimpleNamespace(remote=all_members))
    monkeypatch.setattr(ray_programs, "connect", lambda address, namespace: ray)
    monkeypatch.setattr(ray_programs, "start_members", lambda ray: actor)
    monkeypatch.setattr(ray_programs, "versions", lambda: {})
    return RayPrograms("auto", tmp_path, {}, notes.append, 60.0), ray, notes


def waiting(cluster: Made, name: str = "sampler-0") -> tuple[RayProgram, Actor]:
    programs, ray, _ = cluster
    program = programs.start(name, COMMAND, Needs(1.0))
    assert (program.end, program.process) == (None, "waits for a node")
    return program, ray.actors[-1]


def started(cluster: Made, name: str = "sampler-0") -> tuple[RayProgram, Actor]:
    program, actor = waiting(cluster, name)
    actor.reply(HERE)
    assert (program.end, program.process) == (None, "4711 on 10.0.0.2")
    return program, actor


def ranks_of(cluster: Made, num: int) -> tuple[RayRanks, list[Actor]]:
    programs, ray, _ = cluster
    ranks = programs.start_ranks("trainer", COMMAND, num, Needs(2.0, 1))
    for actor in ray.actors:
        actor.reply(HERE)
    assert ranks.end is None
    return ranks, ray.actors


def test_a_program_waits_for_a_node_and_says_where_it_runs_and_what_it_writes(cluster, tmp_path, monkeypatch) -> None:
    _, _, notes = cluster
    log = tmp_path / "sampler-0.log"
    log.write_text("of an earlier start\n")
    program, actor = waiting(cluster)
    assert program.end is None and notes == []  # a short wait is not logged
    monkeypatch.setattr(ray_programs, "SAY_S", -1.0)
    assert program.end is None and notes == ["the sampler-0 waits for a node with 1 CPU free, for 0 s so far"]
    actor.reply(ActorUnavailableError("a break"))  # it is asked again
    assert program.end is None
    actor.reply(HERE)
    assert program.end is None and program.process == "4711 on 10.0.0.2"
    assert notes[1:] == ["sampler-0 is process 4711 on 10.0.0.2"]
    with log.open("a") as file:
        file.write("a\nb\nc\nhal")
    assert program.new_lines(2) == ["b", "c"] and program.new_lines() == []
    for answer in (None, ActorUnavailableError("a break")):
        actor.reply(answer)
        assert program.end is None
    silence = "no word of the sampler-0 (4711 on 10.0.0.2); Ray looks whether its node is lost, for 0 s so far"
    assert program.end is None and notes[-1] == silence
    actor.reply(End(-9, "was ended by SIGKILL"))
    assert program.end == program.end == End(-9, "was ended by SIGKILL")
    assert [one.method for one in actor.asked] == ["start", "start", "poll", "poll", "poll"]


@pytest.mark.parametrize(
    ("make", "answer", "has_refused", "text"),
    [
        (
            started,
            ActorDiedError("\n  The actor died: its node was lost.\nmore"),
            False,
            f"the sampler-0 (process 4711 on 10.0.0.2) {LOST}: The actor died: its node was lost.",
        ),
        (waiting, ActorDiedError(""), False, f"the sampler-0 {LOST}: ActorDiedError"),
        (waiting, ValueError("of Ray itself"), False, f"the sampler-0 {LOST}: of Ray itself"),
        # Another rank's host misses the host of the first rank.
        (waiting, RayTaskError(ActorDiedError("gone")), False, f"the sampler-0 {LOST}: ray::start()"),
        (
            waiting,
            RayTaskError(UserError("its torch is 1.0")),
            True,
            "the sampler-0 cannot be started: its torch is 1.0",
        ),
    ],
)
def test_a_lost_node_has_no_status_and_a_start_that_fails_is_a_refusal(
    make: Any, answer: Exception, has_refused: bool, text: str, cluster: Made
) -> None:
    program, actor = make(cluster)
    actor.reply(answer)
    assert program.end == End(2 if has_refused else None, text)


@pytest.mark.parametrize("make", [waiting, started])
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (End(-15, "was ended"), "was ended"),
        (None, "was ended before it had started"),
        (ActorDiedError("gone"), "was lost"),
    ],
)
def test_it_is_stopped_and_its_place_given_back(answer: Any, words: str, make: Any, cluster: Made) -> None:
    programs, ray, _ = cluster
    ray.stop_answer = answer
    program, actor = make(cluster)
    assert programs.members() == {"sampler-0": {"part": "inference"}}
    program.stop()
    assert actor.is_killed and program.end and words in program.end.text and programs.members() == {}
    # A program that waits for a node is ended without a wait for an answer that cannot come.
    assert (ray_programs.STOP_S if make is started else ray_programs.WITHOUT_NODE_S) in ray.timeouts


def test_a_program_asks_for_what_it_needs(cluster: Made) -> None:
    programs, ray, _ = cluster
    programs.start("sampler-0", COMMAND, Needs(0.5, 1))
    [actor] = ray.actors
    assert actor.options == {"num_cpus": 0.5, "num_gpus": 1, "scheduling_strategy": "SPREAD", "max_restarts": 0}
    assert actor.asked[0].words == ("sampler-0", COMMAND, {}, 0, 1, None)
    assert programs.describe() == "a Ray cluster of 2 nodes with 8 CPUs" and programs.num_gpus == 0
    ray.resources["GPU"] = 4.0
    assert programs.describe() == "a Ray cluster of 2 nodes with 8 CPUs and 4 GPUs" and programs.num_gpus == 4


def test_ranks_get_room_at_once_and_have_ended_well_when_all_have(cluster: Made, tmp_path: Path) -> None:
    _, ray, _ = cluster
    ranks, actors = ranks_of(cluster, 3)
    [group] = ray.groups
    assert (group.bundles, group.strategy) == ([{"CPU": 2.0, "GPU": 1}] * 3, "PACK")
    assert [one.asked[0].words for one in actors] == [
        (name, COMMAND, {}, rank, 3, actors[0]) for rank, name in enumerate(("trainer", "trainer-1", "trainer-2"))
    ]
    assert ranks.process == "; ".join(["4711 on 10.0.0.2"] * 3)
    for name in ("trainer", "trainer-1"):
        (tmp_path / f"{name}.log").write_text(f"of {name}\n")
    for actor in actors:
        assert ranks.end is None
        actor.reply(End(0, "well"))
    assert ranks.end == End(0, "well") and ranks.new_lines() == ["of trainer"]
    ranks.stop()
    assert ray.removed == [group] and all(actor.is_killed for actor in actors)


def test_the_rank_that_was_lost_is_the_cause_and_not_one_that_misses_it(cluster: Made, tmp_path: Path) -> None:
    ranks, actors = ranks_of(cluster, 3)
    actors[0].reply(End(2, "a rank is missing"))
    assert ranks.end == End(2, "a rank is missing")
    actors[2].reply(End(-9, "was ended by SIGKILL"))
    assert ranks.end == End(-9, "was ended by SIGKILL")
    for name in ("trainer", "trainer-2"):
        (tmp_path / f"{name}.log").write_text(f"of {name}\n")
    assert ranks.new_lines() == ["of trainer", "trainer-2: of trainer-2"]


@pytest.mark.parametrize(
    ("num", "room"),
    [(1, "a node with 2 CPUs and 1 GPU free"), (3, "room for 3 ranks, each with 2 CPUs and 1 GPU")],
)
def test_room_that_does_not_come_is_an_error_with_what_there_is(num: int, room: str, cluster: Made) -> None:
    programs, _, _ = cluster
    programs._timeout_s = -1.0
    end = programs.start_ranks("trainer", COMMAND, num, Needs(2.0, 1)).end
    assert end and end.has_refused and end.text.startswith(f"the trainer waits for {room}, for 0 s in vain")
    assert "This is a Ray cluster of 2 nodes with 8 CPUs" in end.text
    assert programs.start("sampler-0", COMMAND, Needs(2.0)).end is None  # others may do its work meanwhile


def test_all_programs_end_with_the_cluster_and_those_that_have_ended_free_their_places(cluster: Made) -> None:
    programs, ray, _ = cluster
    with programs:
        ended, actor = waiting(cluster)
        actor.reply(RayTaskError(UserError("no")))
        assert ended.end
        started(cluster, "orchestrator")
        programs.start_ranks("trainer", COMMAND, 2, Needs())
    assert all(actor.is_killed for actor in ray.actors) and ray.is_shut_down and ray.removed == ray.groups
    assert ended.end and ended.end.has_refused


def test_a_missing_package_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r'pip install "slimrl\[ray\]"'):
        import_ray()


@pytest.mark.parametrize(("shares", "found", "left"), [(True, "1", None), (True, "4", "4"), (False, "1", "1")])
def test_a_part_that_shares_the_cpus_of_its_node_computes_with_all_of_them(
    shares: bool, found: str, left: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", found)
    ProgramHost("logs", ".", {}, shares)
    assert os.environ.get("OMP_NUM_THREADS") == left
