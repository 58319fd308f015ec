"""Which weights the sampler has: the orchestrator has it read each version that the trainer publishes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from os import environ

from slimrl.config.run import RLConfig
from slimrl.inference.remote_client import RemoteClient
from slimrl.inference.server_link import SamplerAddress
from slimrl.transport.run_files import RunFiles

POLL_S = 0.05


def find_sampler(config: RLConfig, files: RunFiles) -> SamplerAddress:
    """Where the run's sampler is: at the address in the settings, or where it says itself. Raises UserError if it does
    not come."""
    inference, key = config.inference, ""
    if inference.base_url:
        key, base_url = environ.get(inference.api_key_variable, ""), inference.base_url
    else:
        base_url = files.await_part("inference")["address"]
    return SamplerAddress(base_url, key, inference.timeout_s, inference.backend)


class SampledWeights:
    """The weights that the sampler has, of those that the trainer publishes in the run's files."""

    def __init__(self, files: RunFiles, client: RemoteClient) -> None:
        self._files, self._client = files, client
        self._version = -1  # the sampler may have weights, but none of this run's
        self._updating = threading.Lock()
        self._failure: BaseException | None = None

    def await_version(self, version: int) -> None:
        """Wait until the trainer has published a version, and have the sampler take the newest one. Raises UserError if
        either fails."""
        self._files.await_weights(version)
        self._update()

    @contextmanager
    def kept_new(self) -> Iterator[None]:
        """Has the sampler take each new version while the block runs, in the middle of episodes. Raises UserError at
        its end if that has failed."""
        done = threading.Event()
        thread = threading.Thread(target=self._follow, args=(done,), name="weights", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
        if self._failure:
            raise self._failure

    def _follow(self, done: threading.Event) -> None:
        try:
            while not done.wait(POLL_S):
                self._update()
        except Exception as error:  # raised where the thread is waited for
            self._failure = error

    def _update(self) -> None:
        with self._updating:
            if (newest := self._files.newest_version()) > self._version:
                self._client.update_weights(self._files.weights_path(newest), newest)
                self._version = newest
