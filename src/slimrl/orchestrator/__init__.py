"""The orchestrator: from tasks to samples, by groups of rollouts and their advantages. It never imports trainer."""
