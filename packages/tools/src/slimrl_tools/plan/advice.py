"""Suggests changes where a run does not fit. Each proposal is planned anew, so that its saving is a number."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from slimrl.config.run import RLConfig
from slimrl_tools.plan.demand import HALF
from slimrl_tools.plan.plan import Configs, Plan, saving_of, with_settings
from slimrl_tools.plan.workload import Workload

RANK = 16  # of the proposed adapter
LEAST_SAVED = 0.03e9
SHORTEST, FEWEST_SLOTS, SMALLEST_PACK = 256, 8, 512
Replan = Callable[[Configs, Workload], Plan]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Settings to change, the bytes that this saves, whether the run then fits, and the price of the change."""

    settings: dict[str, object]
    saves: float
    fits: bool
    price: str

    @property
    def text(self) -> str:
        """Return the proposal as a sentence."""
        words = " ".join(f"--{key} {_flag_value(value)}" for key, value in self.settings.items())
        return f"{words} saves {self.saves / 1e9:.1f} GB{', and then it fits' if self.fits else ''} ({self.price})"


def proposals(plan: Plan, replan: Replan) -> list[Proposal]:
    """Return changes that save memory on the tightest device, largest saving first. If none suffices alone, append one
    proposal of several changes together that does."""
    found = list[Proposal]()
    for settings, price in _changes(plan):
        changed = replan(with_settings(plan.config, settings), plan.workload)
        if (saves := saving_of(plan, changed)) >= LEAST_SAVED:
            found.append(Proposal(settings, saves, changed.fits, price))
    found.sort(key=lambda one: -one.saves)
    if plan.fits or any(one.fits for one in found):
        return found
    settings = dict[str, object]()
    for one in found:  # add one after the other, until the run fits
        settings |= one.settings
        changed = replan(with_settings(plan.config, settings), plan.workload)
        if changed.fits:
            return [*found, Proposal(settings, saving_of(plan, changed), True, "all together")]
    return found


def _changes(plan: Plan) -> Iterator[tuple[dict[str, object], str]]:
    """Yield settings that may save memory, each with its price."""
    config, demand = plan.config, plan.demand
    is_rl = isinstance(config, RLConfig)
    section = "trainer." if is_rl else ""
    trainer = config.trainer if isinstance(config, RLConfig) else config
    if config.model.lora.rank == 0:
        yield {"model.lora.rank": RANK}, "trains an adapter; docs/lora.md"
    if not trainer.activation_checkpointing:
        yield {f"{section}activation_checkpointing": True}, "training takes 1.5 times as long"
    micro = trainer.micro_batch_tokens
    if micro > SMALLEST_PACK:
        yield {f"{section}micro_batch_tokens": max(SMALLEST_PACK, micro // 2)}, "more and smaller packs"
    if config.seq_len >= 2 * SHORTEST:
        yield {"seq_len": config.seq_len // 2}, "episodes end sooner"
    if demand.compute.bytes > HALF:
        is_gpu = plan.machine.device.kind == "cuda"
        yield {"model.dtype": "bfloat16"}, "coarser" if is_gpu else "slower on a CPU without bfloat16"
    if not isinstance(config, RLConfig):
        return
    if config.inference.max_slots >= 2 * FEWEST_SLOTS and not config.inference.base_url:
        yield {"inference.max_slots": config.inference.max_slots // 2}, "sampling takes longer"
    if config.trainer.loss.resolve(config.has_teacher).kl_beta:
        yield {"trainer.loss.kl_beta": 0.0}, "no reference"
    if config.async_level and config.deployment.type == "one-process":
        yield {"max_async_level": 0}, "sampling and training in turn"


def _flag_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
