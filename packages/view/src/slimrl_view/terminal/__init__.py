"""This package is the viewer on a terminal, for ssh: steps, groups, rollouts, curves. Needs the extra `terminal`."""
