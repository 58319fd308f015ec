"""Scripts that verify a property: exact resumption, equality with TRL, new games, the solver's play."""
