"""Formats errors as OpenAI's clients expect them: a status and `{"error": {"message", "type", "param", "code"}}`. The
routes of Messages have their clients' format: `{"type": "error", "error": {"type", "message"}}`.

All errors have this format: refused requests, bodies that do not validate, unknown routes, and bugs. A bug's traceback
is only written to the log.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from slimrl.errors import UserError

LOG = logging.getLogger("slimrl.server")
TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
MESSAGES_PATH = "/v1/messages"
MESSAGES_TYPES = {**TYPES, 413: "request_too_large", 503: "overloaded_error"}
LONGEST_MESSAGE = 500  # characters of pydantic's own messages, which quote the body
BUG = "Internal error of the server; its log has the details."

# Unsupported fields of OpenAI and vLLM: only the value that switches them off is accepted.
NOT_HERE = {
    "suffix": "suffix is not supported; leave it out.",
    "tool_choice": (
        'tool_choice must be "none", "auto", "required" or {"type": "function", "function": {"name": "..."}}.'
    ),
    "length_penalty": "length_penalty is not supported; leave it at 1.",
    "use_beam_search": "use_beam_search is not supported; leave it false.",
    "bad_words": "bad_words is not supported; leave it empty.",
    "allowed_token_ids": "allowed_token_ids is not supported; leave it out.",
}


class ApiError(HTTPException):
    """An answer with an error status. `param` names the wrong field of the body."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str = "",
        code: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.param = param
        self.code = code


def bad_request(message: str, param: str = "", code: str = "") -> ApiError:
    """Return the error for an invalid request, status 400."""
    return ApiError(400, message, param=param, code=code)


@contextmanager
def blaming(param: str) -> Iterator[None]:
    """Turn errors about a client's value, such as a directory, into ApiError 400 with its field."""
    try:
        yield
    except (UserError, ValueError, OSError) as error:  # a path may contain a NUL, or be too long
        raise bad_request(str(error), param) from None


def too_long(context_len: int, wanted: str) -> ApiError:
    """Return the error for a prompt that does not fit, in the wording by which clients recognise it."""
    return bad_request(
        f"This model's maximum context length is {context_len} tokens. However, {wanted}. Please shorten the prompt or "
        "ask for fewer tokens.",
        code="context_length_exceeded",
    )


def error_body(path: str, error: ApiError) -> dict[str, Any]:
    """Return the JSON body of an error on a route."""
    status, kind = error.status_code, "invalid_request_error"
    if path == MESSAGES_PATH or path.startswith(f"{MESSAGES_PATH}/"):
        kind = MESSAGES_TYPES.get(status, kind if status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": error.detail}}
    kind = TYPES.get(status, kind if status < 500 else "server_error")
    named = {"param": error.param or None, "code": error.code or None}
    return {"error": {"message": error.detail, "type": kind, **named}}


def documented_errors(path: str) -> dict[int | str, dict[str, Any]]:
    """Return the errors of a route in the form of `/openapi.json`."""
    example = error_body(path, bad_request(""))
    schema = {"type": "object", "required": list(example), "properties": {name: {} for name in example}}
    content = {"application/json": {"schema": schema}}
    return {
        "4XX": {"description": "The request is refused, and why.", "content": content},
        "5XX": {"description": "The server is not ready, or at fault.", "content": content},
    }


def respond(path: str, error: ApiError) -> JSONResponse:
    """Return the response of an error on a route."""
    return JSONResponse(error_body(path, error), error.status_code, error.headers)


def install_handlers(app: FastAPI) -> None:
    """Install the handler that formats every error of the app."""

    def answer(request: Request, error: Exception) -> JSONResponse:
        return respond(request.url.path, _as_api_error(request, error))

    for kind in (HTTPException, RequestValidationError, UserError, Exception):
        app.add_exception_handler(kind, answer)


def _as_api_error(request: Request, error: Exception) -> ApiError:
    match error:
        case ApiError():
            return error
        case HTTPException():
            headers = dict(error.headers or {})
            if error.status_code == 405 and (methods := _allowed_methods(request)):
                headers["Allow"] = ", ".join(methods)
            return ApiError(error.status_code, error.detail, headers=headers)
        case RequestValidationError():
            return bad_request(*explain(error.errors()))
        case UserError():
            return bad_request(str(error))
    LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return ApiError(500, BUG)


def _allowed_methods(request: Request) -> list[str]:
    """Return the methods of all routes with the request's path; Starlette itself reports only the first route's."""
    paths = request.app.openapi()["paths"].items()
    same = (methods for path, methods in paths if compile_path(path)[0].match(request.url.path))
    return sorted({method.upper() for methods in same for method in methods})


def explain(errors: Sequence[Any]) -> tuple[str, str]:
    """Return one message for the errors that pydantic found, and the wrong field."""
    # Each branch of a union reports an error. The error with the longest path is probably in the intended branch.
    first = max(errors, key=lambda error: len(error["loc"]))
    path = [str(key) for key in first["loc"] if key != "body" and not str(key).startswith("(")]
    field = path[0] if path else ""
    if first["type"] == "json_invalid":
        return f"The body is not valid JSON: {first['ctx']['error']}.", ""
    if first["type"] == "unknown_field":
        unknown = first["ctx"]["name"]
        return first["msg"], ".".join([*path, unknown])
    if unsupported := next((key for key in path if key in NOT_HERE), ""):
        return NOT_HERE[unsupported], ".".join(path[: path.index(unsupported) + 1])
    if "content" in path and path[-1] == "type":
        return 'Only text is supported: every part of `content` must have the type "text".', field
    if not path:
        return "The body must be a JSON object, sent with the header `Content-Type: application/json`.", ""
    where = ".".join(key for key in path if key.isidentifier() or key.isdecimal())
    return f"{where or field}: {first['msg'][:LONGEST_MESSAGE]}.", field
