"""The command `python -m slimrl_sandbox` runs the sandbox's server. It needs the extra `server`.

    SANDBOX_TOKEN=secret python -m slimrl_sandbox --port 8080 --tools package.module:tools

`tools` is a function in `package.module`. It takes the data directory and returns the tools, keyed by their names.
"""

import argparse
import asyncio
import importlib
import os
import signal
import sys
from pathlib import Path

from slimrl.errors import UserError, visible
from slimrl.io.urls import is_loopback
from slimrl_sandbox.base import Limits, Tools
from slimrl_sandbox.isolation import UNSAFE
from slimrl_sandbox.local import BubblewrapSandbox

try:
    from slimrl_sandbox.server import gateways, make_app, serve
except UserError as error:  # the extra is missing
    sys.exit(f"slimrl: {error}")

DEFAULT_PORT = "8080"


def main(arguments: list[str]) -> None:
    """Serve until interrupted. Raises UserError if the sandbox cannot isolate code, the port is taken, or other
    machines could reach the server without a token."""
    options = _options(arguments)
    tools = tools_at(options.tools, Path(options.data_dir)) if options.tools else {}
    token = os.environ.get("SANDBOX_TOKEN", "")
    if not (token or options.published or is_loopback(options.host)):
        raise UserError(
            f"--host {options.host} can be reached from other machines, and without a token everyone there could run "
            "code. Set the variable SANDBOX_TOKEN, or leave the host at 127.0.0.1."
        )
    isolation = UNSAFE if options.unsafe_without_isolation else "bubblewrap"
    sandbox = BubblewrapSandbox(tools, Limits(wall_s=options.wall_s), isolation=isolation)
    try:
        asyncio.run(sandbox.run(""))  # raises UserError if code cannot be isolated, before the first request
        app = make_app(sandbox, token, gateways() if options.published else ())
        serve(app, options.host, options.port, sandbox.num_descriptors)
    finally:
        sandbox.close()


def tools_at(place: str, data_dir: Path) -> Tools:
    """Call the function at `place` (`package.module:name`), and return its tools, keyed by their names. Raises
    UserError if it does not exist."""
    module, _, name = place.partition(":")
    try:
        tools: Tools = vars(importlib.import_module(module))[name](data_dir)
    except (ModuleNotFoundError, KeyError, ValueError) as error:
        raise UserError(
            f"--tools {place}: {error!r}. Give package.module:name, a function of the data directory that returns "
            "the tools by their names."
        ) from None
    return tools


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m slimrl_sandbox",
        description="Run the code of models, isolated, for others. The variable SANDBOX_TOKEN holds the token that "
        "requests must send as `Authorization: Bearer TOKEN`.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--published",
        action="store_true",
        help="this is a container whose port is published on the host's loopback address alone: without a token only "
        "what the engine forwards is answered",
    )
    given = os.environ.get
    for name, kind, default, about in (
        ("--port", int, given("SANDBOX_PORT", DEFAULT_PORT), "port, also from SANDBOX_PORT; 0 takes a free one"),
        ("--tools", str, given("SANDBOX_TOOLS", ""), "package.module:function, also from SANDBOX_TOOLS"),
        ("--data-dir", str, given("DATA_DIR", "data"), "what that function gets, also from DATA_DIR"),
        ("--wall-s", float, Limits().wall_s, "time of one execution"),
    ):
        parser.add_argument(name, type=kind, default=default, help=f"{about} (default: %(default)s)")
    parser.add_argument(
        "--unsafe-without-isolation",
        action="store_true",
        help="run code as this user, who then can be harmed by it; limits and time-outs act all the same",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    # SIGTERM raises an exception, so that it also kills the sandbox's processes and deletes its files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(visible(f"slimrl: {error}"), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
