"""Programs of others that serve a model, started and stopped: llama.cpp and vLLM."""
