"""Reinforcement learning for small language models on multi-turn tasks: what a task of your own is made of."""

from slimrl.errors import UserError
from slimrl.types import Message, Task, Turn

__all__ = ["Message", "Task", "Turn", "UserError"]
