"""A discrete-event model of an RL run: how fast it is, how old its batches are and what a step costs, on N devices."""
