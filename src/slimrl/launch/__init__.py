"""The parts and stages of commands. Only this package and the commands know both the orchestrator and the trainer."""
