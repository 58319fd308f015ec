"""`textarena:NAME`: the games of TextArena, for one player, against an opponent, or in self-play."""
