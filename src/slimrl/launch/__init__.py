"""The parts and stages of commands. With the commands, this is the only code that knows orchestrator and trainer."""
