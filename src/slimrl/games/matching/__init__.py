"""The matching game: two players with partial views of one table agree on which reviewer reads which paper.

Rules, generator, text protocol and files of games. Knows nothing of models, tokens or chats.
"""
