"""Formats every error as OpenAI's clients expect it: a status and `{"error": {"message", "type", "param", "code"}}`.

The errors are refused requests, invalid bodies, unknown routes, and bugs. A bug's traceback is only written to the log.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from slimrl.errors import UserError
from slimrl.io.http_access import Refusal

LOG = logging.getLogger(__name__)
TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
LONGEST_MESSAGE = 500  # characters of pydantic's own messages, which quote the body
BUG = "Internal error of the server; its log has the details."


class ApiError(HTTPException):
    """An answer with an error status. `param` names the wrong field of the body."""

    def __init__(
        self, status: int, message: str, *, param: str = "", code: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.param = param
        self.code = code


def bad_request(message: str, param: str = "", code: str = "") -> ApiError:
    """Return the error for an invalid request, status 400."""
    return ApiError(400, message, param=param, code=code)


@contextmanager
def blame(param: str) -> Iterator[None]:
    """Context manager: convert errors about a client's value, such as a directory, into ApiError 400 with the field
    `param`."""
    try:
        yield
    except (UserError, ValueError, OSError) as error:  # a path may contain a NUL, or be too long
        raise bad_request(str(error), param) from None


def too_long(context_len: int, wanted: str) -> ApiError:
    """Return the error for a prompt that does not fit, in OpenAI's wording, by which clients recognise it."""
    return bad_request(
        f"This model's maximum context length is {context_len} tokens. However, {wanted}. Please shorten the prompt or "
        "ask for fewer tokens.",
        code="context_length_exceeded",
    )


def error_body(error: ApiError) -> dict[str, Any]:
    """Return the JSON body of an error."""
    kind = TYPES.get(error.status_code, "invalid_request_error" if error.status_code < 500 else "server_error")
    fields = {"message": error.detail, "type": kind, "param": error.param or None, "code": error.code or None}
    return {"error": fields}


def refuse(refusal: Refusal) -> JSONResponse:
    """Return the response to a request that is refused before it reaches a route."""
    return _respond(ApiError(refusal.status, refusal.message, code=refusal.code, headers=refusal.headers))


def install_handlers(app: FastAPI) -> None:
    """Install the handler that formats every error of the app."""

    def answer(request: Request, error: Exception) -> JSONResponse:
        return _respond(_as_api_error(request, error))

    for kind in (HTTPException, RequestValidationError, UserError, Exception):
        app.add_exception_handler(kind, answer)


def _respond(error: ApiError) -> JSONResponse:
    return JSONResponse(error_body(error), error.status_code, error.headers)


def _as_api_error(request: Request, error: Exception) -> ApiError:
    match error:
        case ApiError():
            return error
        case HTTPException():
            return ApiError(error.status_code, error.detail, headers=error.headers)
        case RequestValidationError():
            return bad_request(*_explain(error.errors()))
        case UserError():
            return bad_request(str(error))
    LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return ApiError(500, BUG)


def _explain(errors: Sequence[Any]) -> tuple[str, str]:
    # Each branch of a union reports an error. The error with the longest path is probably in the intended branch. A
    # class name in a path means a branch.
    first = max(errors, key=lambda error: len(error["loc"]))
    path = [str(key) for key in first["loc"] if key != "body" and not str(key)[:1].isupper()]
    if first["type"] == "json_invalid":
        return f"The body is not valid JSON: {first['ctx']['error']}.", ""
    if first["type"] == "unknown_field":
        return first["msg"], ".".join([*path, first["ctx"]["name"]])
    if not path and first["type"] == "value_error":
        return f"The body: {first['ctx']['error']}.", ""
    if not path:
        return "The body must be a JSON object, sent with the header `Content-Type: application/json`.", ""
    where = ".".join(key for key in path if key.isidentifier() or key.isdecimal())
    return f"{where or path[0]}: {first['msg'][:LONGEST_MESSAGE]}.", path[0]
