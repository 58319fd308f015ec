"""`openenv:`: environment servers with OpenEnv's protocol."""
