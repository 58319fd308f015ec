"""An MCP server with one tool: the prices of a shop. It is started by rl_tools.toml.

uv run --with mcp python examples/your_task/server.py
"""

from mcp.server import MCPServer

PRICES = {"apple": 7, "bread": 12, "candle": 5, "drum": 31, "kite": 19, "lamp": 24}

server = MCPServer("shop")


@server.tool()
def price(thing: str, pieces: int = 1) -> str:
    """Tells what some pieces of a thing cost."""
    if thing not in PRICES:
        return f"We have no {thing}, but {', '.join(PRICES)}."
    return str(pieces * PRICES[thing])


if __name__ == "__main__":
    server.run("stdio")
