"""The rules of the matching game in plain Python; no models, tokens, chats or PyTorch."""
