"""Programs that a run starts and watches: as children on this host, by Ray on some node, and vLLM."""
