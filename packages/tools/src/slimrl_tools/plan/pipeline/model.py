"""The model of the pipeline: replicas, orchestrator and trainer as processes of a discrete-event simulation (SimPy).

What waits for what is that of the real parts (the orchestrator of slimrl-cluster, `launch/sampling.py`,
`orchestrator/`); how long each piece of work takes is given. Nothing here is measured, and a seed decides all that is
drawn.
"""

from dataclasses import dataclass, field
from typing import Any

from slimrl.errors import require
from slimrl_tools.plan.pipeline.device import Job, SharedDevice, Wait
from slimrl_tools.plan.pipeline.episodes import RecordedEpisodes
from slimrl_tools.plan.pipeline.orchestrator import SimulatedBatch, SimulatedOrchestrator
from slimrl_tools.plan.pipeline.outcome import Outcome, StepRecord, outcome_of
from slimrl_tools.plan.pipeline.placement import Costs, Placement, Recipe
from slimrl_tools.plan.pipeline.pool import SimulatedPool, num_places
from slimrl_tools.plan.pipeline.replica import Replica

LULL_S = 0.05  # without an open request, until an engine beside a trainer is paused (`inference/local_client.py`)
WARM_STEPS = 3  # beyond the level: until the pool is full and batches are as old as they get


@dataclass
class _Run:
    """The state of one simulated run."""

    env: Any
    placement: Placement
    recipe: Recipe
    costs: Costs
    orchestrator: SimulatedOrchestrator
    replicas: list[Replica]
    device: SharedDevice  # the trainer's
    steps: int
    published: int = 0
    batches: dict[int, SimulatedBatch] = field(default_factory=dict)
    changed: Any = None  # the event that something was published, loaded or sent
    records: list[StepRecord] = field(default_factory=list)

    def change(self) -> None:
        """Wake all who wait for weights or batches."""
        event, self.changed = self.changed, self.env.event()
        event.succeed()

    def record(self, step: int, began: float, trained_s: float, batch: SimulatedBatch) -> None:
        """Write down a step that ends now."""
        busy = sum(replica.totals.busy_s for replica in self._settled())
        self.records.append(StepRecord(step, began, self.env.now, trained_s, busy, batch.row.trained, batch.ages))

    def _settled(self) -> list[Replica]:
        for replica in self.replicas:
            replica.settle()
        return self.replicas


def simulate(
    placement: Placement, recipe: Recipe, costs: Costs, episodes: RecordedEpisodes, steps: int = 20, seed: int = 0
) -> Outcome:
    """Play `steps` training steps after those in which the pool fills. Raises UserError if SimPy is missing."""
    simpy = require("simpy", "simulate", "the model of the pipeline")
    env = simpy.Environment()
    trainer = SharedDevice(costs.sharing)
    replicas = [
        Replica(env, costs, placement.slots, trainer if placement.shares_device else SharedDevice(costs.sharing))
        for _ in range(placement.num_samplers)
    ]
    pool = SimulatedPool(simpy, env, replicas, num_places(placement, recipe))
    orchestrator = SimulatedOrchestrator(env, pool, recipe, episodes, placement.level, seed)
    warm = placement.level + WARM_STEPS
    run = _Run(env, placement, recipe, costs, orchestrator, replicas, trainer, warm + steps, changed=env.event())
    if placement.kind == "one-process":
        env.run(env.process(_take_turns(run)))
    else:
        env.process(_orchestrate(run))
        env.process(_transfer(run))
        env.run(env.process(_train(run)))
    return outcome_of(run.records[warm - 1 :], placement, replicas, orchestrator)


def _take_turns(run: _Run) -> Wait:
    """One process: sample a batch, train on it. Above level 0 episodes go on while the trainer trains, and wait for
    the engine; before the trainer's turn, the engine samples what was begun in place of what the batch took away."""
    engine = run.replicas[0]
    for step in range(run.steps):
        began, before = run.env.now, engine.totals.tokens
        batch = yield from run.orchestrator.collect(step)
        if run.placement.level:
            while engine.totals.tokens - before < 2 * batch.sampled:
                was_open = run.orchestrator.pool.num_open
                yield run.env.timeout(LULL_S)
                if not was_open and not run.orchestrator.pool.num_open:
                    break
        engine.pause()
        trained_s = run.costs.train_s(batch.row, run.recipe, 1)
        yield run.env.timeout(trained_s)
        run.orchestrator.version = step + 1
        engine.resume()
        engine.hold(run.costs.copy_s)
        run.record(step, began, trained_s, batch)


def _orchestrate(run: _Run) -> Wait:
    """The orchestrator as a process: no batch is made more than one step ahead."""
    for step in range(run.steps):
        while run.orchestrator.version < step - min(1, run.placement.level):
            yield run.changed
        batch = yield from run.orchestrator.collect(step)
        run.batches[step] = batch
        run.change()


def _train(run: _Run) -> Wait:
    """The trainer as a process."""
    for step in range(run.steps):
        began = run.env.now
        while step not in run.batches:
            yield run.changed
        batch = run.batches.pop(step)
        yield run.env.timeout(run.costs.batch_s)
        seconds = run.costs.train_s(batch.row, run.recipe, run.placement.num_trainers)
        trains = run.env.now
        yield from Job(run.env, run.device, seconds).run()
        run.published = step + 1
        run.record(step, began, run.env.now - trains, batch)
        run.change()


def _transfer(run: _Run) -> Wait:
    """New weights on their way to the replicas, the newest each time."""
    while True:
        while run.published == run.orchestrator.version:
            yield run.changed
        newest = run.published
        seconds = run.costs.transfer_s(run.placement.num_samplers)
        for replica in run.replicas:
            replica.hold(seconds)
        # On a shared device the loading is slower while the trainer computes.
        yield run.env.timeout(seconds)
        run.orchestrator.version = newest
        run.change()
