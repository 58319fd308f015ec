"""Contains the probes of `slimrl doctor`. Each probe examines one subject, such as the memory, and yields findings."""
