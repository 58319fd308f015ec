"""An MCP server by hand. Its argument is the form of its results (`mcp_results.jsonl`), in which PID is its own pid."""

import json
import os
import sys
from pathlib import Path

FORM = sys.argv[1]
LINES = Path(__file__).with_name("mcp_results.jsonl").read_text("utf-8").replace("PID", f"pid-{os.getpid()}")
RESULTS = {one["form"]: one["result"] for one in map(json.loads, LINES.splitlines())}
VALUE = {"$ref": "#/nowhere"} if FORM == "broken schema" else {"type": "number"}
OUTPUT = {"type": "object", "properties": {"t": VALUE}, "required": ["t"] if FORM != "broken schema" else []}
TOOL = {"name": "look", "description": "Looks.", "inputSchema": {"type": "object"}, "outputSchema": OUTPUT}


def answer(method: str, params: dict) -> dict | None:
    match method:
        case "initialize":
            known = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
            return known | {"serverInfo": {"name": "odd", "version": "1"}}
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            return RESULTS[FORM]
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params", {}))
        found = {"result": result} if result else {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **found}), flush=True)
