"""Tools around a run: its plan, its model card, the doctor, prime-rl's settings, the curves of recorded runs."""
