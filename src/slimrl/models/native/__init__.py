"""C++ kernels for the slow operations on a CPU. They are compiled for this CPU on first use."""
