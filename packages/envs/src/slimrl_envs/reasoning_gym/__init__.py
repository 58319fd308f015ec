"""The tasks of the package reasoning-gym."""
