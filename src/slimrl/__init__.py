"""slimrl: reinforcement learning for small language models on the hardware people own."""
