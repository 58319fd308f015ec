"""The orchestrator plays groups of rollouts on tasks and computes their advantages. It never imports trainer."""
