"""What a GPU alone can show: its kernels, recorded graphs, and whole commands on it."""
