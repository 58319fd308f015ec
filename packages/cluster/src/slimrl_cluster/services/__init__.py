"""Starts and watches the programs of a run: as child processes on this host, or through Ray on a node. Also runs
vLLM."""
