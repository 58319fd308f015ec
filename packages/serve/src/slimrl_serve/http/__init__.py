"""An HTTP server that bounds what its clients may cost. Knows nothing of the application that is served."""
