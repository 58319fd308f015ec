"""Defines the commands and deployments that the entry points of slimrl-cluster name."""

from slimrl.plugins import Command, Deployment

ORCHESTRATOR = Command(
    "collect the batches of an `rl` run whose parts are processes of their own", is_part=True, again="", computes=True
)
LAUNCH = Command(
    "write the batch script that runs `rl` over the nodes of a SLURM cluster",
    run="slimrl_cluster.commands.launch:run_launch",
)
STATUS = Command(
    "say who does what in a run, who waits for whom, and how far it is", run="slimrl_cluster.commands.status:run_status"
)
SCALE = Command("change the number of samplers of a run that goes on", run="slimrl_cluster.commands.status:run_scale")

PROCESSES = RAY = Deployment(
    run="slimrl_cluster.launch.supervision:supervise",
    parts={
        "trainer": "slimrl_cluster.commands.trainer:run_trainer_of_rl",
        "orchestrator": "slimrl_cluster.commands.orchestrator:run_orchestrator",
        "inference": "slimrl_cluster.commands.sampler:run_sampler_of_rl",
    },
)
