"""`openenv:`: environment servers that speak OpenEnv's protocol."""
