"""The parts and stages of commands. Only this package and the commands import both the orchestrator and the trainer."""
