"""Episodes with OpenEnv's server in a container, by the engine that answers here."""

import asyncio
import subprocess

import pytest

from packages.envs.tests.openenv.image import IMAGE, make_image
from packages.envs.tests.openenv.players import needs_openenv, numbered, play
from slimrl.errors import RolloutError, UserError
from slimrl_envs.openenv.server import engine_of, start_container
from slimrl_envs.openenv.taskset import OpenEnv

pytestmark = [needs_openenv, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def image(tmp_path_factory):
    if not engine_of():  # asked here, since every collection would ask above
        pytest.skip("neither Docker nor Podman answers here")
    make_image(tmp_path_factory.mktemp("image"))


def running():
    """The ids of this image's containers."""
    command = [engine_of(), "ps", "--quiet", "--filter", f"ancestor={IMAGE}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_episodes_are_played_in_a_container_which_ends_with_the_taskset():
    taskset = OpenEnv(f"docker/{IMAGE}")
    taskset.prepare()
    assert len(running()) == 1
    opening, turns = asyncio.run(play(taskset, ["3", "7"], numbered(7)))
    assert opening[-1]["content"].startswith("Guess a number from 0 to 9.")
    assert [(turn.reward, turn.done) for turn in turns] == [(-0.25, False), (1.0, True)]
    taskset.close()
    assert not running()


def test_a_container_that_dies_costs_its_episode_and_is_started_again():
    taskset = OpenEnv(f"docker/{IMAGE}")
    taskset.prepare()
    (before,) = running()
    with pytest.raises(RolloutError):
        asyncio.run(play(taskset, ["die"], numbered(7)))
    _, turns = asyncio.run(play(taskset, ["7"], numbered(7)))
    assert turns[-1].reward == 1.0
    (after,) = running()
    assert after != before
    taskset.close()
    assert not running()


def test_the_port_is_open_to_this_machine_alone():
    container = start_container(IMAGE)
    try:
        assert container.url.startswith("http://127.0.0.1:")
        ports = subprocess.run([engine_of(), "port", *running()], capture_output=True, text=True, check=True).stdout
        assert ports.split()[-1].startswith("127.0.0.1:")
    finally:
        container.end()


def test_an_image_that_is_not_there_is_named():
    with pytest.raises(UserError, match="localhost/no-such-image"):
        OpenEnv("docker/localhost/no-such-image:1").prepare()
