"""Each wait in the tables of docs/waits.md has tests that start it, and let the other side be silent or die."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WAITS = ROOT / "docs" / "waits.md"
CORE = "tests/"
CLUSTER, ENVS, SANDBOX, SEARCH, SERVE, TOOLS, VIEW = (
    f"packages/{name}/tests/" for name in ("cluster", "envs", "sandbox", "search", "serve", "tools", "view")
)
STOPS = "commands/test_waits.py::"
SERVER, CODE, PROGRAM = (
    f"{STOPS}test_{name}_that_stands_still" for name in ("a_server", "code_of_an_environment", "a_program")
)
SAMPLER, PART, ALONE = (
    f"{CLUSTER}{STOPS}test_a_{name}"
    for name in ("sampler_that_stands_still", "part_of_a_run_that_a_signal_stops", "part_whose_other_side_never_begins")
)
MEETING, REPLICAS = f"{CLUSTER}transport/test_meeting.py::", f"{CLUSTER}inference/test_replicas.py::"
HOSTILE, RAY = f"{SERVE}adversary/test_servers.py::", f"{CLUSTER}services/test_ray_"
WORKER = f"{CORE}rollout/worker/test_taskset.py::"
RANKS = f"{CORE}launch/test_rank_failures.py::"

TESTS: dict[str, tuple[str, ...]] = {
    "a batch; new weights; the other part to start": (
        ALONE,
        PART,
        MEETING + "test_who_waits_too_long_is_told_for_whom",
        MEETING + "test_who_waits_for_a_part_that_dies_is_told_its_name",
    ),
    "a sampler: one that is ready; its answer": (
        REPLICAS + "test_without_a_sampler_requests_wait_for_one_that_comes",
        REPLICAS + "test_one_that_is_silent_when_it_gets_weights_is_given_up_too",
        SAMPLER,
        PART,
        f"{CLUSTER}inference/test_remote_client.py::test_a_server_that_hangs_is_named_within_its_time",
    ),
    "a part that dies; the end of its parts": (
        f"{CLUSTER}commands/test_processes.py::test_three_processes_that_are_killed_do_what_one_does",
        f"{CLUSTER}launch/test_supervision.py::test_a_sampler_that_dies_is_started_again_and_the_others_stay",
        PART,
        f"{CLUSTER}commands/test_processes.py::test_ctrl_c_ends_all_and_says_how_to_continue",
    ),
    "a node of Ray or SLURM": (
        RAY + "programs.py::test_a_program_waits_for_a_node_and_says_where_it_runs_and_what_it_writes",
        RAY + "programs.py::test_it_is_stopped_and_its_place_given_back",
        f"{CLUSTER}launch/test_slurm.py::test_nodes_that_do_not_come_are_told",
    ),
    "the others, once one has died": (
        RANKS + "test_a_rank_that_is_killed_in_a_step_ends_the_others",
        RANKS + "test_a_rank_that_is_stopped_is_not_waited_for_for_ever",
    ),
    "a call into its environment": (
        CORE + CODE,
        WORKER + "test_an_episode_that_waits_too_long_is_a_drop_and_its_process_goes_on",
    ),
    'code of an environment in the run\'s process (`worker = "none"`) that holds the thread': (
        "packages/tools/tests/check/test_check.py::test_ctrl_c_ends_a_command_that_an_environment_holds",
        f"{CORE}rollout/test_loop.py::test_a_thread_that_is_held_is_reported_once_with_its_line",
        f"{CORE}rollout/test_loop.py::test_an_environment_that_stops_the_loop_ends_the_run_and_the_next_episodes_get_another",
        f"{CORE}orchestrator/test_pool.py::test_an_environment_that_holds_the_thread_ends_the_run_with_its_place",
    ),
    "the `prepare()` of an environment in a worker process, also of one that is started again": (
        WORKER + "test_a_preparation_that_hangs_is_named_and_ended",
        WORKER + "test_a_preparation_that_hangs_in_the_next_process_is_waited_for_once_in_a_step",
    ),
    "an environment to load, its tasks, its scripts, its servers to start": (
        CORE + CODE,
        WORKER + "test_an_expert_that_hangs_is_named_and_ended",
        CORE + SERVER,
        CORE + PROGRAM,
        ENVS + SERVER,
        f"{ENVS}openenv/test_hostile_server.py::test_a_server_that_never_answers_takes_the_time_of_a_step",
    ),
    "a judge, a partner, the teacher": (
        CORE + SERVER,
        ENVS + SERVER,
        SEARCH + SERVER,
        f"{CORE}judges/test_judge.py::test_a_judge_that_is_not_there_is_told_at_once_and_one_that_loads_is_waited_for",
    ),
    "a judge that sleeps or wakes on the GPU": (
        f"{CORE}judges/test_judge_sleeps.py::test_a_server_that_is_away_has_no_memory_to_free_and_is_woken_when_it_is_back",
    ),
    "a tool of MCP; code in the sandbox": (
        f"{CORE}environments/dataset/test_tools.py::test_a_server_is_shared_and_started_again_and_a_call_that_hangs_becomes_text",
        f"{SANDBOX}test_local.py::test_time_out",
        f"{SANDBOX}test_local.py::test_tools_that_never_return_hold_up_nobody",
        f"{SANDBOX}test_server.py::test_programs_of_clients_that_have_left_are_ended",
    ),
    "a client: the head of its request, the body, the next one, its reading": (
        HOSTILE + "test_a_client_that_keeps_the_server_waiting_is_left",
        f"{SERVE}clients/test_hostile.py::test_a_client_that_never_reads_does_not_hold_up_the_others",
    ),
    "the server's end": (f"{SERVE}test_life.py::test_the_command_serves_until_a_signal_ends_it",),
    "an index of a large run; `run_vllm.py` and `run_llamacpp.py` a program that is ready": (
        f"{VIEW}test_scan.py::test_a_pass_that_is_stopped_is_completed_by_the_next",
        f"{SEARCH}services/test_programs.py::test_a_wait_is_noted_and_an_interrupt_leaves_nothing_running",
    ),
    "a file lock; the directory or the lease of another run": (
        f"{CORE}io/test_locks.py::test_a_holder_that_is_stopped_is_not_waited_for",
        f"{CORE}io/test_locks.py::test_the_holder_is_named_and_its_death_ends_the_wait",
        f"{CORE}commands/test_early.py::test_a_directory_in_use_is_refused_at_once",
        f"{CORE}launch/test_open_dir.py::test_on_a_cluster_a_resumed_part_waits_for_the_lock_of_the_one_before_it",
    ),
    "the kernels to be compiled": (CORE + PROGRAM,),
    "the next bytes": (
        f"{CORE}io/test_wheel_file.py::test_an_index_that_does_not_answer_is_given_up_with_what_to_type",
        CORE + SERVER,
    ),
    "a probe": (f"{TOOLS}doctor/test_doctor.py::test_a_probe_that_fails_or_hangs_is_told_with_its_reason",),
}


def rows() -> list[str]:
    """The second cells of the tables' rows."""
    lines = [line for line in WAITS.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [line.split(" | ")[1] for line in lines]
    return [cell for cell in cells if cell != "for what"]


def test_every_wait_has_its_tests() -> None:
    assert sorted(rows()) == sorted(TESTS)


@pytest.mark.parametrize("wait", TESTS)
def test_they_exist(wait: str) -> None:
    assert TESTS[wait]
    for test in TESTS[wait]:
        file, _, name = test.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), test
