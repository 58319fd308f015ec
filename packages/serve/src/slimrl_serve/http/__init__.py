"""An HTTP server that limits the resources of its clients. It does not depend on the served application."""
