"""From tasks to samples: collects groups of rollouts and gives credit. Never imports trainer."""
