"""Sends weights from a separate trainer process to the samplers, in files. Contains both sides: the trainer's and the
orchestrator's."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from os import environ

from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.launch.parts import TrainerParts
from slimrl.models.load import save_weights
from slimrl.models.lora import base_fingerprint, is_adapted
from slimrl.trainer.checkpoint import report_write_errors
from slimrl_cluster.inference.remote_client import RemoteClient
from slimrl_cluster.inference.replicas import Replicas
from slimrl_cluster.inference.server_link import SamplerAddress
from slimrl_cluster.transport.roster import Roster, describe_member, newest_version

POLL_S = 0.05
END_S = 5.0  # seconds to wait for a running update when sampling stops; its daemon thread may continue


def sampler_addresses(config: RLConfig, roster: Roster) -> dict[str, SamplerAddress]:
    """Return the addresses of the run's samplers by name, from `inference.base_url` or from the samplers'
    announcements. A process that replaces another one has a new name."""
    inference = config.inference
    key = environ.get(inference.api_key_variable, "")
    if inference.base_url:
        found = {"base_url": inference.base_url}
    else:
        members = roster.members("inference").items()
        found = {f"{name}, {describe_member(facts)}": facts["address"] for name, facts in members}
    return {
        name: SamplerAddress(address, key, inference.timeout_s, inference.backend) for name, address in found.items()
    }


def make_replicas(config: RLConfig, roster: Roster, stop_ids: frozenset[int]) -> Replicas:
    """Wait for the first sampler, and create the client of the run's samplers. Raises UserError if no sampler
    starts."""
    if not config.inference.base_url:
        roster.await_part("inference")
    return Replicas(
        lambda: sampler_addresses(config, roster),
        lambda address: RemoteClient(address, stop_ids, config.seq_len),
        roster.note,
        config.deployment.timeout_s,  # the same limit as for the first sampler, because a new one must load its model
    )


class SampledWeights:
    """The orchestrator's side. It makes the samplers load each weight version that the trainer publishes in the run's
    directory."""

    def __init__(self, roster: Roster, client: Replicas) -> None:
        self._roster, self._client = roster, client
        self._version = -1  # no weights of this run are loaded yet
        self._updating = threading.Lock()
        self._failure: BaseException | None = None

    def await_version(self, version: int) -> None:
        """Wait until the trainer has published a version, and make the samplers load the newest version. Raises
        UserError if waiting or loading fails."""
        run = self._roster.run
        self._roster.wait("trainer", f"weights of version {version}", lambda: newest_version(run) >= version or None)
        self._update()

    @contextmanager
    def keep_new(self) -> Iterator[None]:
        """Context manager: make the sampler load each new version during the block, also in the middle of episodes.
        Raises UserError at the end of the block if an update has failed."""
        done = threading.Event()
        thread = threading.Thread(target=self._follow, args=(done,), name="weights", daemon=True)
        thread.start()
        try:
            yield
        except UserError as error:
            # The block may have failed because a sampler refused weights, so raise the refusal.
            if self._failure:
                raise self._failure from error
            raise
        finally:
            done.set()
            thread.join(END_S)
        if self._failure:
            raise self._failure

    def _follow(self, done: threading.Event) -> None:
        try:
            while not done.wait(POLL_S):
                self._update()
        except Exception as error:  # `keep_new` raises it
            self._failure = error

    def _update(self) -> None:
        with self._updating:
            if (newest := newest_version(self._roster.run)) > self._version:
                self._client.update_weights(self._roster.run.sent_weights_of(newest), newest)
                self._version = newest


class PublishedWeights:
    """The trainer's side. It writes each version of the weights to a directory. If the model has an adapter and the
    samplers have the same base model, only the adapter is written."""

    def __init__(self, parts: TrainerParts, roster: Roster) -> None:
        self._policy, self._ranks, self._roster = parts.policy, parts.ranks, roster
        self._newest = -1
        inference = parts.config.inference
        # Send only the adapter to slimrl's own samplers: a sampler at `base_url` may have another base model, and vLLM
        # needs whole weights.
        is_own = inference.backend == "slimrl" and not inference.base_url
        module = parts.policy.module
        self._base = base_fingerprint(module) if is_own and is_adapted(module) else ""

    def publish(self, version: int) -> None:
        """Publish the module's current weights as `version`, unless this version is published already. Raises UserError
        if they cannot be written."""
        if version == self._newest:
            return
        path = self._roster.run.sent_weights_of(version)
        with self._ranks.united(), report_write_errors(path):
            save_weights(self._policy, path, leads=self._ranks.leads, base=self._base)
        self._newest = version
