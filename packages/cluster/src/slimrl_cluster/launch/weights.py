"""Sends weights from a separate trainer process to the samplers, in files or by broadcast. Contains both sides: the
trainer's and the orchestrator's."""

import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from os import environ
from typing import Any, TypeVar

import torch
from torch import Tensor

from slimrl.config.deployment import DeploymentConfig
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.launch.parts import TrainerParts
from slimrl.models.load import save_weights
from slimrl.models.lora import AdapterForm, adapter_form, adapter_tensors, is_adapted, merge_parameters
from slimrl.trainer.checkpoint import report_write_errors
from slimrl.transport.broadcast import GROUP_S, Meeting, WeightGroup, describe_kinds, listen
from slimrl_cluster.inference.remote_client import RemoteClient
from slimrl_cluster.inference.replicas import Replicas
from slimrl_cluster.inference.server_link import SamplerAddress
from slimrl_cluster.transport.roster import Roster, describe_member, newest_version

POLL_S = 0.05
END_S = 5.0  # seconds to wait for a running update when sampling stops; its daemon thread may continue
LOOK_S = 1.0  # seconds between two checks for samplers
CAUSE_S = 2.0  # seconds to wait for a sampler's refusal after it has made the group fail
MEET_S = 60.0  # most seconds for a sampler that is alive to join a group, or to receive a tensor
T = TypeVar("T")


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

    def __init__(self, roster: Roster, client: Replicas, deployment: DeploymentConfig) -> None:
        self._roster, self._client, self._are_broadcast = roster, client, deployment.weights == "broadcast"
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
                path = self._roster.run.sent_weights_of(newest)
                self._client.update_weights(None if self._are_broadcast else path, newest)
                self._version = newest


class PublishedWeights:
    """The trainer's side. It writes each version of the weights to a directory. Or it broadcasts the version, and then
    creates an empty directory as a sign for the orchestrator. If the model has an adapter and the samplers have the
    same base model, only the adapter is sent."""

    def __init__(self, parts: TrainerParts, roster: Roster) -> None:
        self._config, self._policy, self._ranks, self._roster = parts.config, parts.policy, parts.ranks, roster
        self._is_broadcast = parts.config.deployment.weights == "broadcast"
        self._sender: WeightSender | None = None
        self._open = ExitStack()  # the sender and its clients
        self._present: Mapping[str, SamplerAddress] = {}  # the samplers in the sender's group
        self._newest, self._looked = -1, 0.0
        inference = parts.config.inference
        # Send only the adapter to slimrl's own samplers: a sampler at `base_url` may have another base model, and vLLM
        # needs whole weights.
        is_own = inference.backend == "slimrl" and not inference.base_url
        self._adapter = adapter_form(parts.policy.module) if is_own and is_adapted(parts.policy.module) else None

    def publish(self, version: int) -> None:
        """Publish the module's current weights as `version`, unless this version is published already. Raises UserError
        if they cannot be written or sent."""
        if version != self._newest:
            self._give(version)
            self._newest = version

    def lack_samplers(self) -> bool:
        """Return True if a sampler has joined, or replaced another one, since the last broadcast. Check only every
        `LOOK_S` seconds, and return False in between. Only one rank calls this."""
        if not self._is_broadcast or self._newest < 0 or time.monotonic() - self._looked < LOOK_S:
            return False
        self._looked = time.monotonic()
        return bool(self._find().keys() - self._present.keys())

    def send_again(self) -> None:
        """Broadcast the last published version once more; the module still has it."""
        self._give(self._newest)

    def close(self) -> None:
        """Leave the broadcast group, if there is one, and cancel all requests to its samplers."""
        self._sender = None
        self._open.close()

    def _give(self, version: int) -> None:
        path, leads = self._roster.run.sent_weights_of(version), self._ranks.leads
        if self._is_broadcast and leads:
            self._await_samplers()  # before `united`, where the other ranks wait only for a limited time
        with self._ranks.united(), report_write_errors(path):
            if not self._is_broadcast:
                save_weights(self._policy, path, leads=leads, adapter=self._adapter)
                return
            module = self._policy.module
            tensors = adapter_tensors(module) if self._adapter else merge_parameters(module, keep=leads)
            if leads:
                self._broadcast(tensors, version)
                path.mkdir(parents=True, exist_ok=True)

    def _find(self) -> Mapping[str, SamplerAddress]:
        return sampler_addresses(self._config, self._roster)

    def _await_samplers(self) -> None:
        """Wait until there is a sampler. Raises UserError if none starts."""
        if not self._config.inference.base_url:
            self._roster.await_part("inference")

    def _broadcast(self, tensors: Mapping[str, Tensor], version: int) -> None:
        """Send the weights to all current samplers. If samplers have joined or left since the last broadcast, form a
        new group. If one leaves during this broadcast, repeat the broadcast in a new group. Raises UserError if a
        sampler stays but does not load the weights."""
        with ThreadPoolExecutor(1, "broadcast") as thread:
            while True:
                self._await_samplers()
                if not (present := self._find()):
                    continue  # the only sampler has left in the meantime
                sending = thread.submit(self._send_to, present, tensors, version)
                while not wait([sending], LOOK_S).done:
                    if self._have_left(present):
                        self.close()
                try:
                    sending.result()
                    return
                except (UserError, CancelledError, RuntimeError):  # RuntimeError: connections were closed
                    self.close()
                    deadline = time.monotonic() + self._roster.loss_s
                    while not self._have_left(present):
                        if time.monotonic() > deadline:
                            raise
                        time.sleep(LOOK_S / 4)

    def _have_left(self, present: Mapping[str, SamplerAddress]) -> bool:
        return bool(present.keys() - self._find().keys())

    def _send_to(self, present: Mapping[str, SamplerAddress], tensors: Mapping[str, Tensor], version: int) -> None:
        """Send the weights to the samplers in `present`. Form a new group if the samplers have changed."""
        if self._sender is None or present.keys() != self._present.keys():
            self.close()
            stop_ids, seq_len = self._policy.chat.stop_ids, self._config.seq_len
            clients = [RemoteClient(address, stop_ids, seq_len) for address in present.values()]
            for client in clients:
                self._open.callback(client.close)
                client.wait(client.check())
            host, timeout_s = self._config.deployment.host, min(self._config.inference.timeout_s, MEET_S)
            self._sender = self._open.enter_context(WeightSender(clients, host, self._policy.device, timeout_s))
            self._present = present
        self._sender.send(tensors, version, self._adapter)


class WeightSender:
    """Broadcasts the trainer's weights to samplers over a process group. The samplers connect to this machine at
    `address`, which is 127.0.0.1 if they run on it too. Call `check` of all `clients` first: it counts the processes of
    a sampler, and every process gets its own rank."""

    def __init__(
        self, clients: Sequence[RemoteClient], address: str, device: torch.device, timeout_s: float = GROUP_S
    ) -> None:
        self._clients = clients
        listener = listen(address)
        port, first_ranks = listener.getsockname()[1], [1]
        for client in clients:
            first_ranks.append(first_ranks[-1] + client.num_processes)
        world_size = first_ranks.pop()
        group = Meeting(address, port, 0, world_size, device, timeout_s)
        self._group = self._together(
            lambda place, client: client.join_group(address, port, first_ranks[place], world_size),
            lambda: WeightGroup(group, listener),
        )

    def send(self, tensors: Mapping[str, Tensor], version: int, adapter: AdapterForm | None = None) -> None:
        """Send `tensors` to all samplers, and return once the samplers have loaded them. With an `adapter`, `tensors`
        are the adapter's matrices with PEFT's names. Raises UserError if a sampler does not load them."""
        kinds = describe_kinds(tensors) | ({"adapter": asdict(adapter)} if adapter else {})
        for client in self._clients:  # a sampler that is not ready refuses here, before anything waits for it
            client.wait(client.start_update())
        self._together(
            lambda _, client: client.finish_update(kinds, version), lambda: self._group.send(tensors.values())
        )

    def close(self) -> None:
        """Leave the group."""
        self._group.close()

    def __enter__(self) -> "WeightSender":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _together(self, ask: Callable[[int, RemoteClient], Coroutine[Any, Any, None]], own: Callable[[], T]) -> T:
        """Run `own` here while `ask` runs for every client. If `own` fails because a sampler has refused, the sampler's
        error is raised."""
        asked = [client.start(ask(place, client)) for place, client in enumerate(self._clients)]
        try:
            result = own()
        except UserError:
            for future in wait(asked, CAUSE_S).done:
                future.result()
            raise
        for future in asked:
            future.result()
        return result
