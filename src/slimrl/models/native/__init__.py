"""Kernels in C++ for the operations that a CPU spends its time on, compiled for it when first used."""
