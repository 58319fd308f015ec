"""The tasks of the Berkeley Function Calling Leaderboard, from the package bfcl-eval."""
