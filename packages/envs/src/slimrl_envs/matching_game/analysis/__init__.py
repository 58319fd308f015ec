"""How much was asked in games of the matching game, compared over training."""
