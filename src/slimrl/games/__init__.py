"""Rules of games, in plain Python: knows nothing of models, tokens or chats, and needs no PyTorch."""
