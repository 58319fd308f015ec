"""Scripts that train a recipe on several seeds and report the held-out rewards."""
