"""The orchestrator, from tasks to samples: groups of rollouts and their advantages. It never imports trainer."""
