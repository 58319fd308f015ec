"""Decodes with CUDA graphs: a decoding step needs one kernel launch instead of a thousand.

A graph repeats the same operations on the same memory. So all inputs that differ between decoding steps (tokens,
positions, places in the cache) are in tensors that are filled before a replay. Shapes are rounded up. The rows are the
slots from 0 to at least the highest used slot, idle slots included, and each row attends to a rounded number of keys. A
graph is recorded on first use for each pair of a number of rows and a number of keys. Graphs read the weights in place,
so an update of their values needs no new recording.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from slimrl.inference.cache import RowsPlan, SlotCache
from slimrl.models.device import to_device
from slimrl.models.forward.module import ModuleForward

FEWEST_KEYS = 256
WARMUPS = 2  # runs before recording, in which libraries choose kernels and allocate workspaces
# Runs work, and returns its result and a function that computes this result again in place.
Recorder = Callable[[Callable[[], Tensor]], tuple[Tensor, Callable[[], None]]]


def cuda_recorder(device: torch.device) -> Recorder:
    """Return a recorder of CUDA graphs. All graphs share one memory pool, because only one graph runs at a time."""
    pool = torch.cuda.graph_pool_handle()

    def record(work: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
        # Warm up on a side stream, as PyTorch requires before a capture: launches there are not recorded.
        aside = torch.cuda.Stream(device)
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):
            for _ in range(WARMUPS):
                work()
        torch.cuda.current_stream(device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        # Another thread may be receiving new weights; the capture must ignore it.
        capture = torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local")
        with torch.cuda.device(device), capture:
            result = work()
        return result, graph.replay

    return record


def decode_graphs(forward: object, cache: SlotCache, device: torch.device) -> "DecodeGraphs | None":
    """Return the graphs for a module on CUDA; None on other devices, where launching costs little."""
    if device.type != "cuda" or not isinstance(forward, ModuleForward):
        return None
    return DecodeGraphs(forward, cache, device, partial(cuda_recorder, device))


class DecodeGraphs:
    """CUDA graphs that compute the logits after one new token in each of several slots."""

    def __init__(
        self, forward: ModuleForward, cache: SlotCache, device: torch.device, make_recorder: Callable[[], Recorder]
    ) -> None:
        self._forward = forward
        self._cache = cache
        self._make_recorder = make_recorder
        # Token ids, positions and places in the cache, by slot. Graphs read this tensor at its address.
        self._inputs = torch.zeros(3, cache.num_slots, dtype=torch.long, device=device)
        self._weights = forward.addresses()
        self.clear()

    def clear(self) -> None:
        """Drop all graphs, because the memory of the cache is about to be freed."""
        self._graphs: dict[tuple[int, int], tuple[Tensor, Callable[[], None]]] = {}
        self._record = self._make_recorder()  # PyTorch destroys a memory pool with its last graph

    def logits(self, fed: Sequence[tuple[int, int, int]]) -> Tensor:
        """Return the logits (B, V) after each fed token. An entry of `fed` is (slot, token id, position). The next call
        overwrites the logits."""
        num_rows = _round_up(max(slot for slot, _, _ in fed) + 1, 1, self._cache.num_slots)
        num_keys = _round_up(max(position for _, _, position in fed) + 1, FEWEST_KEYS, self._cache.capacity)
        self._fill(fed)
        if (num_rows, num_keys) not in self._graphs:
            self._graphs[num_rows, num_keys] = self._record(self._work(num_rows, num_keys))
        result_SV, replay = self._graphs[num_rows, num_keys]
        replay()
        slots = [slot for slot, _, _ in fed]
        if slots == list(range(len(slots))):
            return result_SV[: len(slots)]
        return result_SV[to_device(slots, torch.long, result_SV.device)]

    def refresh(self) -> None:
        """Drop all graphs if the weights have moved to other addresses, because graphs would read the old addresses."""
        if (addresses := self._forward.addresses()) != self._weights:
            self._weights = addresses
            self.clear()

    def _fill(self, fed: Sequence[tuple[int, int, int]]) -> None:
        """Copy the inputs to the device. An idle row attends to position 0 and writes to the cache's spare slot."""
        num_slots, capacity = self._cache.num_slots, self._cache.capacity
        tokens, positions = [0] * num_slots, [0] * num_slots
        places = [num_slots * capacity] * num_slots
        for slot, token, position in fed:
            tokens[slot], positions[slot], places[slot] = token, position, slot * capacity + position
        self._inputs.copy_(to_device([tokens, positions, places], torch.long, self._inputs.device))

    def _work(self, num_rows: int, num_keys: int) -> Callable[[], Tensor]:
        tokens_S, positions_S, places_S = self._inputs[:, :num_rows]

        # Create the plan inside the recording, so that each replay computes its masks from the positions.
        def work() -> Tensor:
            plan = RowsPlan(self._cache, positions_S, places_S, num_keys)
            return self._forward.logits(self._forward.last_hidden(tokens_S, positions_S, plan))

        return work


def _round_up(number: int, least: int, most: int) -> int:
    """Round up to a power of two, between `least` and `most`. This keeps the number of different shapes, and so of
    graphs, small."""
    return min(max(least, 1 << (number - 1).bit_length()), most)
