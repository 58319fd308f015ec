"""Programs on Ray's nodes, with a stand-in for Ray: what each of its answers and errors comes to."""

import os
import sys
import threading
import time
from collections.abc import Callable
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
    """A question to an actor, answered when the test answers it."""

    def __init__(self, method: str, words: tuple[Any, ...] = ()) -> None:
        self.method, self.words = method, words
        self.answer: Any = None
        self.answered = threading.Event()

    def reply(self, answer: Any) -> None:
        self.answer = answer
        self.answered.set()


class Actor:
    """An actor; whatever is asked of it is kept, the newest last."""

    def __init__(self, options: dict[str, Any] | None = None) -> None:
        self.options, self.asked = options or {}, list[Asked]()
        self.is_killed = False

    def __getattr__(self, method: str) -> Any:
        def remote(*words: Any) -> Asked:
            self.asked.append(Asked(method, words))
            return self.asked[-1]

        return SimpleNamespace(remote=remote)

    def reply(self, answer: Any) -> None:
        """Answer the oldest question that has no answer, as soon as it is asked."""
        until(lambda: any(not one.answered.is_set() for one in self.asked))
        next(one for one in self.asked if not one.answered.is_set()).reply(answer)


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


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
        self.has_room, self.is_shut_down = True, False
        self.stop_answer: Any = End(-15, "was ended")
        strategies = SimpleNamespace(PlacementGroupSchedulingStrategy=lambda group, place: (group, place))
        self.util = SimpleNamespace(
            placement_group=self._group, remove_placement_group=self.removed.append, scheduling_strategies=strategies
        )

    def wait(self, asked: list[Asked], timeout: float) -> tuple[list[Asked], list[Asked]]:
        if asked[0].method == "meeting_place":
            asked[0].reply(("10.0.0.2", 4000))
        return (asked, []) if asked[0].answered.wait(max(0.0, timeout)) else ([], asked)

    def get(self, asked: Asked, timeout: float | None = None) -> Any:
        self.timeouts.append(timeout)
        answer = self.stop_answer if asked.method == "stop" else asked.answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self, actor: Actor) -> None:
        actor.is_killed = True
        for one in actor.asked:
            if not one.answered.is_set():
                one.reply(ActorDiedError("killed"))

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
        asked = Asked("ready")
        if self.has_room:
            asked.reply(True)
        self.groups.append(SimpleNamespace(bundles=bundles, strategy=strategy, ready=lambda: asked))
        return self.groups[-1]


Made = tuple[RayPrograms, FakeRay, list[str]]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Programs on a cluster, the cluster, and what is noted."""
    ray, notes, members = FakeRay(), list[str](), Members()
    members.announce("sampler-0", {"part": "inference"})
    asked = SimpleNamespace(
        remove=SimpleNamespace(remote=members.remove), all=SimpleNamespace(remote=lambda: answered(members.all()))
    )
    monkeypatch.setattr(ray_programs, "POLL_S", 0.001)
    monkeypatch.setattr(ray_programs, "SAY_S", 0.01)
    monkeypatch.setattr(ray_programs, "connect", lambda address, namespace: ray)
    monkeypatch.setattr(ray_programs, "start_members", lambda ray: asked)
    monkeypatch.setattr(ray_programs, "versions", lambda: {})
    return RayPrograms("auto", tmp_path, {}, notes.append, 0.05), ray, notes


def answered(answer: Any) -> Asked:
    asked = Asked("all")
    asked.reply(answer)
    return asked


def program_of(cluster: Made, name: str = "sampler-0") -> tuple[RayProgram, Actor]:
    programs, ray, _ = cluster
    program = programs.start(name, ["python", "-m", "slimrl", "inference"], Needs(1.0))
    return program, ray.actors[-1]


def started(cluster: Made, name: str = "sampler-0") -> tuple[RayProgram, Actor]:
    program, actor = program_of(cluster, name)
    actor.reply((4711, "10.0.0.2"))
    until(lambda: program.process == "4711 on 10.0.0.2")
    return program, actor


def test_a_program_waits_for_a_node_and_says_where_it_runs_and_what_it_writes(cluster: Made) -> None:
    _, _, notes = cluster
    program, actor = program_of(cluster)
    assert (program.end, program.process) == (None, "waits for a node")
    until(lambda: "the sampler-0 waits for a node with 1 CPU free, for 0 s so far" in notes)
    actor.reply(ActorUnavailableError("a break"))  # it is asked again
    actor.reply((4711, "10.0.0.2"))
    until(lambda: "sampler-0 is process 4711 on 10.0.0.2" in notes)
    assert program.process == "4711 on 10.0.0.2"
    assert [one.method for one in actor.asked] == ["start", "start", "poll"]
    for lines in (["a", "b"], [], ["c"]):
        actor.reply((None, lines))
    until(lambda: len(actor.asked) == 6)
    assert program.new_lines(2) == ["b", "c"] and program.new_lines() == []
    for _ in range(3):
        actor.reply(ActorUnavailableError("a break"))
    silence = "no word of the sampler-0 (4711 on 10.0.0.2); Ray looks whether its node is lost"
    until(lambda: any(note.startswith(silence) for note in notes))
    actor.reply((End(-9, "was ended by SIGKILL"), ["last"]))
    until(lambda: program.end)
    assert program.end == End(-9, "was ended by SIGKILL") and program.new_lines() == ["last"]
    assert actor.asked[-1].answered.is_set()  # it is asked no more


LOST = "was lost, with its node or with Ray's actor"


@pytest.mark.parametrize(
    ("make", "answer", "has_refused", "text"),
    [
        (
            started,
            ActorDiedError("\n  The actor died: its node was lost.\nmore"),
            False,
            f"the sampler-0 (process 4711 on 10.0.0.2) {LOST}: The actor died: its node was lost.",
        ),
        (program_of, ActorDiedError(""), False, f"the sampler-0 {LOST}: ActorDiedError"),
        (
            program_of,
            RayTaskError(UserError("its torch is 1.0")),
            True,
            "the sampler-0 cannot be started: its torch is 1.0",
        ),
    ],
)
def test_a_node_that_is_lost_has_no_status_and_a_start_that_fails_is_a_refusal(
    make: Any, answer: Exception, has_refused: bool, text: str, cluster: Made
) -> None:
    program, actor = make(cluster)
    actor.reply(answer)
    until(lambda: program.end)
    assert program.end == End(2 if has_refused else None, text)


@pytest.mark.parametrize("make", [program_of, started])
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
    # What waits for a node is ended without a wait for an answer that cannot come.
    assert (ray_programs.STOP_S if make is started else ray_programs.WITHOUT_NODE_S) in ray.timeouts
    assert not program._thread.is_alive()


def ranks_of(cluster: Made, num: int) -> tuple[RayRanks, list[Actor], list[bool]]:
    made = [started(cluster, f"trainer-{rank}") for rank in range(num)]
    released: list[bool] = []
    return RayRanks("trainer", [one for one, _ in made], lambda: released.append(True)), [a for _, a in made], released


def test_ranks_have_ended_well_when_all_have(cluster: Made) -> None:
    ranks, actors, released = ranks_of(cluster, 2)
    assert ranks.process == "4711 on 10.0.0.2; 4711 on 10.0.0.2"
    actors[1].reply((End(0, "well"), ["of the second"]))
    assert ranks.end is None
    actors[0].reply((End(0, "well"), ["of the first"]))
    until(lambda: ranks.end)
    assert ranks.end == End(0, "well") and ranks.new_lines() == ["of the first"]
    ranks.stop()
    assert released == [True] and all(actor.is_killed for actor in actors)


def test_the_rank_that_was_lost_is_the_cause_and_not_one_that_misses_it(cluster: Made) -> None:
    ranks, actors, _ = ranks_of(cluster, 3)
    actors[0].reply((End(2, "a rank is missing"), ["first"]))
    until(lambda: ranks.end)
    assert ranks.end == End(2, "a rank is missing")
    actors[2].reply((End(-9, "was ended by SIGKILL"), ["third"]))
    until(lambda: ranks.end != End(2, "a rank is missing"))
    assert ranks.end == End(-9, "was ended by SIGKILL")
    assert ranks.new_lines() == ["first", "trainer-2: third"]


def test_a_program_asks_for_what_it_needs(cluster: Made) -> None:
    programs, ray, _ = cluster
    programs.start("sampler-0", ["python", "-m", "slimrl", "inference"], Needs(0.5, 1))
    [actor] = ray.actors
    assert actor.options == {"num_cpus": 0.5, "num_gpus": 1, "scheduling_strategy": "SPREAD", "max_restarts": 0}
    until(lambda: actor.asked)
    assert actor.asked[0].words[:2] == ("sampler-0", ["python", "-m", "slimrl", "inference"])
    assert programs.describe() == "a Ray cluster of 2 nodes with 8 CPUs" and programs.num_gpus == 0
    ray.resources["GPU"] = 4.0
    assert programs.describe() == "a Ray cluster of 2 nodes with 8 CPUs and 4 GPUs" and programs.num_gpus == 4


def test_ranks_get_room_at_once_and_meet_at_the_first(cluster: Made) -> None:
    programs, ray, _ = cluster
    ranks = programs.start_ranks("trainer", ["python"], 3, Needs(2.0, 1))
    [group] = ray.groups
    assert (group.bundles, group.strategy) == ([{"CPU": 2.0, "GPU": 1}] * 3, "PACK")
    until(lambda: all(actor.asked and actor.asked[-1].method == "start" for actor in ray.actors))
    starts = [actor.asked[-1].words for actor in ray.actors]
    assert [name for name, *_ in starts] == ["trainer", "trainer-1", "trainer-2"]
    for rank, (_, _, variables, _) in enumerate(starts):
        assert (variables["RANK"], variables["WORLD_SIZE"], variables["LOCAL_RANK"]) == (str(rank), "3", "0")
        assert (variables["MASTER_ADDR"], variables["MASTER_PORT"]) == ("10.0.0.2", "4000")
    ranks.stop()
    assert ray.removed == [group]


def test_room_that_does_not_come_is_an_error_with_what_there_is(cluster: Made) -> None:
    programs, ray, notes = cluster
    ray.has_room = False
    room = "waiting for room for 3 ranks of the trainer, each with 2 CPUs"
    with pytest.raises(UserError, match=rf"{room}, for 0 s in vain .* 2 nodes"):
        programs.start_ranks("trainer", ["python"], 3, Needs(2.0))
    assert ray.removed == ray.groups and notes[0].startswith(room)


def test_all_programs_end_with_the_cluster_and_those_that_have_ended_free_their_places(cluster: Made) -> None:
    programs, ray, _ = cluster
    with programs:
        ended, actor = program_of(cluster)
        actor.reply(RayTaskError(UserError("no")))
        until(lambda: ended.end)
        started(cluster, "orchestrator")
        programs.start_ranks("trainer", ["python"], 2, Needs())
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
