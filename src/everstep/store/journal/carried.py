"""Values that errors carry and that cannot be stored as they are: responses, requests, headers, and placeholders for anything else.

Each known kind becomes a few plain fields and comes back as its own class, if the reading program has imported the library. Libraries are
looked up in `sys.modules` and never imported. Credentials are left out: request headers, cookies, passwords in URLs. No I/O: a body is kept
only if it was read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Fields = dict[str, Any]
Taken = tuple[str, Fields, list[str]]
MAX_CONTENT = 64 * 1024
# Headers with credentials, and headers about the encoding of the body, which is kept decoded.
_NOT_KEPT = frozenset({"set-cookie", "set-cookie2", "content-encoding", "transfer-encoding", "content-length"})
VALIDATION = "pydantic_core._pydantic_core.ValidationError"


class NotKept:
    """A placeholder for a value that could not be stored. Any use except showing it raises an error that says so."""

    def __init__(self, what: str, type_name: str, text: str | None = None):
        self._what, self._type_name, self._text = what, type_name, text

    def _reason(self) -> str:
        return (
            f"{self._what} was not kept when the error was recorded, or cannot be read here: it was a {self._type_name}. To keep it, register the "
            "class of the error or of this value: everstep.register(Class, encode=..., decode=...)"
        )

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no {name!r}: {self._reason()}")

    def __bool__(self) -> bool:
        raise TypeError(self._reason())

    def __repr__(self) -> str:
        return f"<{self._what} was not kept: a {self._type_name}>" if self._text is None else self._text

    def taken(self) -> Fields:
        return {"what": self._what, "type": self._type_name, "text": self._text}


def not_kept(fields: Fields) -> NotKept:
    text = fields.get("text")
    return NotKept(str(fields.get("what")), str(fields.get("type")), None if text is None else str(text))


def take(value: Any) -> Taken | None:
    """Return the kind of a known value, its fields, and the names of the parts that are left out; None for an unknown one."""
    for cls in type(value).__mro__:
        found = _TAKERS.get((cls.__module__.partition(".")[0], cls.__name__))
        if found is not None:
            return found(value, cls.__module__.partition(".")[0])
    return None


def make(kind: str, fields: Fields) -> Any:
    """Return the value of a known kind. Raises any error if the fields are wrong, LookupError if the library is not imported."""
    library, _, name = kind.partition(".")
    return _MAKERS[library, name](sys.modules[_MODULES[library]], fields)


def _headers(headers: Any) -> tuple[list[list[str]], list[str]]:
    pairs = [[str(name), str(value)] for name, value in headers.items()]
    left = sorted({name.lower() for name, _ in pairs} & _NOT_KEPT)
    return [pair for pair in pairs if pair[0].lower() not in _NOT_KEPT], [f"headers[{name}]" for name in left]


def _content(content: Any, fields: Fields) -> list[str]:
    if not isinstance(content, bytes) or len(content) > MAX_CONTENT:
        return ["content"]
    fields["content"] = content
    return []


def _httpx_request(request: Any, library: str) -> Taken:
    url = request.url.copy_with(password=None) if request.url.password else request.url
    return f"{library}.Request", {"method": request.method, "url": str(url)}, ["headers", "content"]


def _httpx_response(response: Any, library: str) -> Taken:
    headers, left = _headers(response.headers)
    fields: Fields = {"status_code": response.status_code, "headers": headers}
    left += _content(vars(response).get("_content"), fields)
    request = vars(response).get("_request")
    if request is not None:
        fields["request"] = _httpx_request(request, library)[1]
        left += ["request.headers", "request.content"]
    return f"{library}.Response", fields, left


def _make_httpx_request(library: Any, fields: Fields) -> Any:
    return library.Request(_text(fields["method"]), _text(fields["url"]))


def _make_httpx_response(library: Any, fields: Fields) -> Any:
    request = _make_httpx_request(library, fields["request"]) if "request" in fields else None
    headers = [(_text(name), _text(value)) for name, value in fields["headers"]]
    body = {"content": bytes(fields["content"])} if "content" in fields else {"stream": library.ByteStream(b"")}
    response = library.Response(_number(fields["status_code"]), headers=headers, request=request, **body)
    if "content" in fields:
        response.headers.pop("content-length", None)
    else:
        vars(response).pop("_content", None)  # reading it raises the library's own error instead of returning an empty body
    return response


def _requests_response(response: Any, library: str) -> Taken:
    headers, left = _headers(response.headers)
    fields: Fields = {name: getattr(response, name) for name in ("status_code", "reason", "url", "encoding")} | {"headers": headers}
    left += _content(response._content, fields)
    if response.request is not None:
        _, fields["request"], more = _requests_request(response.request, library)
        left += [f"request.{name}" for name in more]
    return "requests.Response", fields, left


def _requests_request(request: Any, _: str) -> Taken:
    return f"requests.{type(request).__name__}", {"method": request.method, "url": request.url}, ["headers", "body"]


def _make_requests_response(library: Any, fields: Fields) -> Any:
    response = library.Response()
    response.status_code = _number(fields["status_code"])
    for name in ("reason", "url", "encoding"):
        setattr(response, name, None if fields[name] is None else _text(fields[name]))
    response.headers.update({_text(name): _text(value) for name, value in fields["headers"]})
    response._content = bytes(fields["content"]) if "content" in fields else False
    response._content_consumed = True
    if "request" in fields:
        response.request = _requests_request_of(library.PreparedRequest(), fields["request"])
    return response


def _requests_request_of(request: Any, fields: Fields) -> Any:
    request.method, request.url = (None if fields[name] is None else _text(fields[name]) for name in ("method", "url"))
    return request


def _message(message: Any, _: str) -> Taken:
    headers, left = _headers(message)
    return f"{type(message).__module__.partition('.')[0]}.{type(message).__name__}", {"headers": headers}, left


def _make_message(cls: Any, fields: Fields) -> Any:
    message = cls()
    for name, value in fields["headers"]:
        message[_text(name)] = _text(value)
    return message


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"a text must be a str, got {type(value).__name__}")
    return value


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"a number must be an int, got {type(value).__name__}")
    return value


_MODULES = {"httpx": "httpx", "httpx2": "httpx2", "requests": "requests", "email": "email.message", "http": "http.client"}
_TAKERS: dict[tuple[str, str], Callable[[Any, str], Taken]] = {
    ("httpx", "Request"): _httpx_request, ("httpx2", "Request"): _httpx_request,
    ("httpx", "Response"): _httpx_response, ("httpx2", "Response"): _httpx_response,
    ("requests", "Response"): _requests_response, ("requests", "PreparedRequest"): _requests_request, ("requests", "Request"): _requests_request,
    ("email", "Message"): _message,
}  # fmt: skip
_MAKERS: dict[tuple[str, str], Callable[[Any, Fields], Any]] = {
    ("httpx", "Request"): _make_httpx_request, ("httpx2", "Request"): _make_httpx_request,
    ("httpx", "Response"): _make_httpx_response, ("httpx2", "Response"): _make_httpx_response,
    ("requests", "Response"): _make_requests_response,
    ("requests", "PreparedRequest"): lambda library, fields: _requests_request_of(library.PreparedRequest(), fields),
    ("requests", "Request"): lambda library, fields: _requests_request_of(library.Request(), fields),
    ("email", "Message"): lambda library, fields: _make_message(library.Message, fields),
    ("http", "HTTPMessage"): lambda library, fields: _make_message(library.HTTPMessage, fields),
}  # fmt: skip


def take_validation(error: Any) -> Fields:
    """Return the parts of a pydantic ValidationError. The program's own error types are taken apart, too."""
    _, (title, lines, input_type, hide_input) = error.__reduce__()
    return {"title": title, "lines": [_line(line) for line in lines], "input_type": input_type, "hide_input": hide_input}


def _line(line: Fields) -> Fields:
    line = {name: value for name, value in line.items() if name not in ("msg", "url")}
    kind = line["type"]
    if not isinstance(kind, str):
        line["type"] = {"type": kind.type, "template": kind.message_template, "context": kind.context}
    return line


def make_validation(cls: Any, fields: Fields) -> Any:
    """Make a ValidationError of these fields, in the library's own way of unpickling. It validates nothing."""
    custom = sys.modules["pydantic_core"].PydanticCustomError
    lines = [dict(line) for line in fields["lines"]]
    for line in lines:
        if type(line["type"]) is dict:
            line["type"] = custom(line["type"]["type"], line["type"]["template"], line["type"]["context"])
        if isinstance(line.get("input"), NotKept):
            line["input"] = _named_as_before(line["input"])
    return cls.from_exception_data(fields["title"], lines, fields["input_type"], fields["hide_input"])


def _named_as_before(lost: NotKept) -> NotKept:
    """Return a value of a class with the recorded name: pydantic shows the class name of an input in its text."""
    taken = lost.taken()
    cls: type[NotKept] = type(str(taken["type"]).rpartition(".")[2], (NotKept,), {})
    return cls(taken["what"], taken["type"], taken["text"])
