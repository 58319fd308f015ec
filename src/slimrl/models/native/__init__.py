"""C++ kernels for the slow operations on a CPU, compiled for it on first use."""
