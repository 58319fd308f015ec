"""An MCP server by hand. The first argument names the form of its results; each result ends with the server's pid."""

import json
import os
import sys

PID = f"pid-{os.getpid()}"
TEXT = {"type": "text", "text": f"21.5 degrees {PID}"}
RESOURCE = {"uri": "file:///a.txt", "mimeType": "text/plain", "text": f"The lamp costs 12. {PID}"}
RESULTS = {
    "structured": {"content": [], "structuredContent": {"t": 21.5, "pid": PID}},
    "structured beside a picture": {
        "content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}],
        "structuredContent": {"t": 21.5, "pid": PID},
    },
    "structured beside an empty text": {
        "content": [{"type": "text", "text": ""}],
        "structuredContent": {"t": 21.5, "pid": PID},
    },
    "structured list": {"content": [], "structuredContent": {"all": [1, None], "pid": PID}},
    "promised": {"content": [TEXT]},
    "wrong shape": {"content": [TEXT], "structuredContent": {"t": "21.5"}},
    "resource": {"content": [{"type": "resource", "resource": RESOURCE}]},
    "picture": {
        "content": [
            {"type": "resource", "resource": {"uri": f"file:///{PID}", "mimeType": "image/png", "blob": "aGk="}}
        ]
    },
    "link": {"content": [{"type": "resource_link", "uri": f"file:///{PID}.txt", "name": "a.txt", "description": "A."}]},
    "error": {"content": [TEXT], "structuredContent": {"code": 404}, "isError": True},
    "error in structure": {"content": [], "structuredContent": {"code": 404, "pid": PID}, "isError": True},
    "no list": {"content": PID},
    "unknown part": {"content": [{"type": "hologram", "text": PID}]},
}
OUTPUT = {"type": "object", "properties": {"t": {"type": "number"}}, "required": ["t"]}
TOOL = {"name": "look", "description": "Looks.", "inputSchema": {"type": "object"}, "outputSchema": OUTPUT}

if sys.argv[1] == "broken schema":
    TOOL["outputSchema"] = {"type": "object", "properties": {"t": {"$ref": "#/nowhere"}}}


def answer(method: str, params: dict) -> dict | None:
    match method:
        case "initialize":
            known = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
            return known | {"serverInfo": {"name": "odd", "version": "1"}}
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            return RESULTS.get(sys.argv[1], RESULTS["structured"])
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params", {}))
        found = {"result": result} if result else {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **found}), flush=True)
