"""A recorded error comes back with its class, args, text and attributes, so a handler takes the same way on resume."""

import asyncio
import builtins
import importlib.util
import io
import json
import subprocess
import sys
import textwrap
import time
import urllib.error
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pydantic
import pydantic_core
import pytest

import everstep
from everstep.codec.values import encode
from everstep.errors import InvalidArgument
from everstep.redact import Redactor
from everstep.store.journal.failures import error_body, rebuilt

httpx = pytest.importorskip("httpx", reason="needs pip install 'everstep[dev-adapters]'")
httpx2 = pytest.importorskip("httpx2", reason="needs pip install 'everstep[dev-adapters]'")
openai = pytest.importorskip("openai", reason="needs pip install 'everstep[dev-adapters]'")
requests = pytest.importorskip("requests", reason="needs pip install 'everstep[dev-adapters]'")


class Crash(BaseException):
    pass


class Keyword(Exception):
    def __init__(self, *, code: int, why: str):
        super().__init__(f"{why} ({code})")
        self.code, self.why = code, why


class Slotted(Exception):
    __slots__ = ("code", "unset")

    def __init__(self, code: int):
        self.code = code

    def __str__(self) -> str:
        return f"slot {self.code}"


class Gone(OSError):
    def __init__(self, path: str):
        super().__init__(2, "it is gone", path)
        self.tries = 3


class Missing(KeyError):
    def __str__(self) -> str:
        return f"no {self.args[0]}"


class Garbled(UnicodeDecodeError):
    def __init__(self, why: str):
        super().__init__("utf-8", b"\xff\xfe", 0, 1, why)


class Silent(UnicodeDecodeError):
    def __init__(self, *args: Any):
        """Leaves all of its parts empty."""


class Ended(StopIteration):
    pass


@dataclass
class Plain(Exception):
    code: int
    why: str = "none"


@dataclass(frozen=True, slots=True)
class Narrow(Exception):
    code: int


@attrs.define
class Defined(Exception):
    code: int


@attrs.frozen(auto_exc=True)
class Still(ValueError):
    code: int
    why: str = attrs.field(kw_only=True, default="x")


class Guarded(Exception):
    """Its class is as odd as classes get: nothing of it may run."""

    ran: ClassVar[list[str]] = []

    def __new__(cls, *args: Any) -> "Guarded":
        cls.ran.append("new")
        return super().__new__(cls, *args)

    def __init__(self, *args: Any):
        self.ran.append("init")
        super().__init__(*args)

    def __setstate__(self, state: Any) -> None:
        self.ran.append("setstate")

    def __reduce__(self) -> Any:
        self.ran.append("reduce")
        return str, ()

    def __setattr__(self, name: str, value: Any) -> None:
        self.ran.append(f"setattr {name}")
        super().__setattr__(name, value)

    def __init_subclass__(cls) -> None:
        cls.ran.append("subclass")

    @classmethod
    def from_exception_data(cls, *args: Any) -> "Guarded":
        cls.ran.append("from data")
        return cls(*args)

    @property
    def trap(self) -> int:
        return 1

    @trap.setter
    def trap(self, value: int) -> None:
        self.ran.append("setter")


class Several(ExceptionGroup[Exception]):
    def __new__(cls, errors: list[Exception], code: int) -> "Several":
        made = super().__new__(cls, f"code {code}", errors)
        made.code = code  # type: ignore[attr-defined]
        return made

    def derive(self, excs: Any) -> "Several":
        return Several(excs, self.code)  # type: ignore[attr-defined]


class Model(pydantic.BaseModel):
    a: int
    b: str = ""

    @pydantic.field_validator("b")
    @classmethod
    def check(cls, value: str) -> str:
        if value == "custom":
            raise pydantic_core.PydanticCustomError("mine", "bad {x} {y}", {"x": 1})
        if value:
            raise ValueError("never")
        return value


def invalid(**given: Any) -> pydantic.ValidationError:
    try:
        Model(**given)
    except pydantic.ValidationError as error:
        return error
    raise AssertionError


REQUEST = httpx.Request("POST", "https://api.example/v1?q=1", headers={"authorization": "Bearer hidden"})
RESPONSE = httpx.Response(
    429, headers={"retry-after": "7", "set-cookie": "s=hidden", "x-request-id": "r1"}, json={"why": "busy"}, request=REQUEST
)
REQUEST2 = httpx2.Request("POST", "https://api.example/v1")
RESPONSE2 = httpx2.Response(429, headers={"retry-after": "7", "x-request-id": "r1"}, json={"why": "busy"}, request=REQUEST2)


def of_requests() -> requests.HTTPError:
    response = requests.Response()
    response.status_code, response.reason, response.url, response._content = 503, "Down", "http://x/", b"later"
    response.headers["Retry-After"] = "9"
    return requests.HTTPError("503 Down", response=response)


def of_urllib() -> urllib.error.HTTPError:
    headers = Message()
    headers["Retry-After"] = "5"
    return urllib.error.HTTPError("http://x/", 404, "Not Found", headers, io.BytesIO(b"body"))


def noted(error: Exception) -> Exception:
    error.add_note("first")
    error.add_note("second")
    return error


def changed(error: Any, **members: Any) -> Exception:
    for name, value in members.items():
        setattr(error, name, value)
    return error  # type: ignore[no-any-return]


def outer_error(value: Any) -> Exception:
    return changed(ValueError("outer"), original=value)


EXACT: list[Exception] = [
    Keyword(code=3, why="no"), Slotted(4), Gone("a.txt"), Missing("k"), Garbled("odd"), Silent("x"), Ended(5), Plain(1), Plain(code=2), Narrow(1),
    Defined(7), Still(8, why="y"), Guarded("x", 1), noted(ValueError("n")),
    ExceptionGroup("many", [ValueError(1), ExceptionGroup("inner", (Keyword(code=1, why="a"), Gone("b")))]), Several([ValueError(1), KeyError("k")], 5),
    invalid(a="x"), invalid(a=[1, {"deep": (2,)}]), invalid(a=1, b="v"), invalid(a="y", b="custom"),
    httpx.ConnectTimeout("slow"), httpx.ReadError("cut"), urllib.error.URLError(ConnectionRefusedError(111, "refused")),
    changed(UnicodeDecodeError("utf-8", b"ab", 0, 1, "bad"), reason="worse", start=1), changed(OSError("x"), errno=2, args=(2, "y")),
    changed(StopIteration(1), value={"a": (1, 2)}), changed(ImportError("m"), name="n", path="p"), BlockingIOError(11, "later", 5),
    changed(SyntaxError("bad", ("f.py", 1, 2, "x y", 1, 3)), lineno=9), OSError(2, "a", "f", None, "g"), outer_error([{"x": KeyError("inner")}]),
    json.JSONDecodeError("no", "{", 1), subprocess.CalledProcessError(3, ["a"], b"out", b"err"), subprocess.TimeoutExpired("a", 2.5),
    requests.ConnectionError(OSError("deep"), 1), asyncio.IncompleteReadError(b"x", 5), InvalidArgument("bad", remedy="Do that."),
]  # fmt: skip


@pytest.fixture
def store() -> Iterator[everstep.Store]:
    with everstep.open("memory://") as store:
        yield store
        assert store.verify("full").ok


def both(store: everstep.Store, fail: Callable[[], Any], run_id: str = "r") -> tuple[Any, Any]:
    """The error that a handler saw live, and the one that it saw on replay."""
    seen: list[Exception] = []

    @everstep.workflow(name="twice")
    def work() -> None:
        try:
            everstep.current().step("it", fail)
        except Exception as error:
            seen.append(error)
        if len(seen) == 1:
            raise Crash

    with pytest.raises(Crash):
        store.start(work, id=run_id)
    store.resume(run_id).unwrap()
    return seen[0], seen[1]


def raising(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def look(value: Any, name: str) -> Any:
    try:
        return getattr(value, name)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def shape(value: Any, depth: int = 0) -> Any:
    """All that a handler can see of a value, in a form that can be compared."""
    if depth > 9:
        return "deep"
    if isinstance(value, BaseException):
        names = sorted({*vars(value), *dir(value)} - {"__traceback__", "__context__", "__dict__", "__everstep_dropped__"})
        names = [n for n in names if n in ("__cause__", "__suppress_context__", "__notes__") or not n.startswith("__")]
        return type(value), str(value), {n: shape(look(value, n), depth + 1) for n in names if not callable(look(value, n))}
    if isinstance(value, (list, tuple)):
        return type(value), [shape(v, depth + 1) for v in value]
    if isinstance(value, dict):
        return {k: shape(v, depth + 1) for k, v in value.items()}
    return type(value), value


@pytest.mark.parametrize("error", EXACT, ids=lambda e: type(e).__name__)
def test_an_error_comes_back_the_same(store: everstep.Store, error: Exception) -> None:
    Guarded.ran.clear()
    expected = shape(error)
    live, again = both(store, raising(error))
    assert live is error
    assert again is not error
    assert shape(again) == expected
    assert getattr(again, "__everstep_dropped__", ()) == ()
    assert Guarded.ran == []
    if isinstance(error, pydantic.ValidationError):
        assert repr(again.errors()) == repr(error.errors())


def of_each_builtin() -> list[Exception]:
    """Instances of every class of exceptions that Python has, made in each way that its constructor accepts."""
    ways: list[tuple[Any, ...]] = [
        (), ("x",), (2, "x"), (2, "x", "file"), (2, "x", "file", None, "other"), ({"a": [1]}, (2,), b"c"), ("utf-8", b"ab", 0, 1, "why"),
        ("utf-8", "ab", 0, 1, "why"), ("ab", 0, 1, "why"), ("m", [ValueError("one"), KeyError("two")]), ("m", ("f.py", 1, 2, "text")),
    ]  # fmt: skip
    made = []
    for cls in dict.fromkeys(c for c in vars(builtins).values() if isinstance(c, type) and issubclass(c, Exception)):
        subclass = type(f"My{cls.__name__}", (cls,), {"__module__": __name__})
        for kind in (cls, subclass):
            count = len(made)
            for way in ways:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        made.append(kind(*way))
                    except (TypeError, ValueError):
                        continue
            assert len(made) > count, f"no way to make a {cls}"
            _ALIVE.append(kind)
    return made


_ALIVE: list[type] = []  # a class that is gone could not be found


def replay(error: Exception) -> BaseException:
    return rebuilt(error_body(error), "it#0")


def test_every_builtin_class_comes_back_the_same_in_all_ways_to_make_it() -> None:
    errors = of_each_builtin()
    assert len(errors) > 600
    for error in errors:
        error.extra = {"a": (1, None)}  # type: ignore[attr-defined]
        error.add_note("n")
        assert shape(replay(error)) == shape(error)


def test_the_comparison_would_see_a_lost_part() -> None:
    """The canary of the search above."""
    for lose in (
        lambda e: e.__dict__.pop("extra"),
        lambda e: setattr(e, "args", ()),
        lambda e: e.__notes__.pop(),
        lambda e: setattr(e, "filename", 0),
    ):
        error = changed(OSError(2, "x", "f"), extra=1)
        error.add_note("n")
        again = replay(error)
        lose(again)
        assert shape(again) != shape(error)


def test_a_cause_is_kept_with_its_own_cause_and_so_is_from_none(store: everstep.Store) -> None:
    def fail() -> None:
        try:
            raise KeyError("inner") from ValueError("innermost")
        except KeyError as error:
            raise Keyword(code=1, why="outer") from error

    live, again = both(store, fail)
    assert shape(again) == shape(live)
    assert (type(again.__cause__), type(again.__cause__.__cause__)) == (KeyError, ValueError)

    def hidden() -> None:
        try:
            raise KeyError("inner")
        except KeyError:
            raise Keyword(code=1, why="outer") from None

    _, again = both(store, hidden, "h")
    assert (again.__cause__, again.__suppress_context__) == (None, True)
    _, again = both(store, raising(ValueError("x")), "n")
    assert again.__suppress_context__ is False


def test_a_chain_of_causes_is_cut_where_it_is_too_long_or_a_ring() -> None:
    error: Exception = ValueError(0)
    for number in range(1, 100):
        error = changed(ValueError(number), __cause__=error)
    again, length = replay(error), 0
    while again.__cause__ is not None:
        again, length = again.__cause__, length + 1
    assert length == 8
    ring = ValueError("ring")
    ring.__cause__ = KeyError("other")
    ring.__cause__.__cause__ = ring
    assert type(replay(ring).__cause__) is KeyError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (httpx.HTTPStatusError("bad", request=REQUEST, response=RESPONSE), "bad"),
        (openai.RateLimitError("slow down", response=RESPONSE2, body={"code": "c", "param": "p", "type": "t"}), "slow down"),  # type: ignore[arg-type]
    ],
    ids=["httpx", "openai"],
)
def test_an_error_with_a_response_comes_back_with_what_a_handler_looks_at(store: everstep.Store, error: Any, text: str) -> None:
    live, again = both(store, raising(error))
    assert (type(again), again.args, str(again)) == (type(live), live.args, text)
    assert type(again.response) is type(live.response)
    for name in ("status_code", "text", "reason_phrase", "url", "is_error"):
        assert getattr(again.response, name) == getattr(live.response, name)
    assert again.response.json() == {"why": "busy"}
    assert (again.response.headers["retry-after"], again.response.headers["x-request-id"]) == ("7", "r1")
    assert (again.request.method, again.request.url) == (live.request.method, live.request.url)
    for name in ("status_code", "request_id", "code", "param", "type", "body", "message"):
        assert getattr(again, name, None) == getattr(live, name, None)
    assert any("response" in name for name in again.__everstep_dropped__)


def test_no_credentials_of_a_request_or_response_are_recorded(store: everstep.Store) -> None:
    error = httpx.HTTPStatusError("bad", request=REQUEST, response=RESPONSE)
    assert b"hidden" not in repr(error_body(error)["fields"]).encode()
    _, again = both(store, raising(error))
    assert "authorization" not in again.request.headers
    assert "set-cookie" not in again.response.headers


def test_requests_and_urllib_errors_come_back_with_status_and_headers(store: everstep.Store) -> None:
    _, again = both(store, raising(of_requests()))
    assert (type(again), str(again), again.response.status_code, again.response.text) == (requests.HTTPError, "503 Down", 503, "later")
    assert (again.response.headers["retry-after"], again.response.reason, again.response.ok, again.request) == ("9", "Down", False, None)
    _, again = both(store, raising(of_urllib()), "u")
    assert (type(again), str(again), again.code, again.url) == (urllib.error.HTTPError, "HTTP Error 404: Not Found", 404, "http://x/")
    assert (again.headers["retry-after"], again.reason, again.filename) == ("5", "Not Found", of_urllib().filename)
    assert "fp" in again.__everstep_dropped__
    with pytest.raises(AttributeError, match="was not kept"):
        again.read()


def test_a_body_that_was_not_read_is_named_and_never_read_by_the_recording(store: everstep.Store) -> None:
    touched: list[int] = []

    def body() -> Iterator[bytes]:
        touched.append(1)
        yield b"x"

    response = httpx.Response(500, content=body(), request=REQUEST)
    _, again = both(store, raising(httpx.HTTPStatusError("bad", request=REQUEST, response=response)))
    assert touched == []
    assert again.response.status_code == 500
    assert "response.content" in again.__everstep_dropped__
    with pytest.raises(httpx.ResponseNotRead):
        again.response.text


class Handle:
    def __init__(self) -> None:
        self.secret = "hidden"
        self.status = 418


class Carrying(Exception):
    def __init__(self, handle: Any):
        super().__init__("carried")
        self.handle, self.code = handle, 7


class Computed(Exception):
    def __init__(self, handle: Any):
        self.handle = handle

    def __str__(self) -> str:
        return f"status {self.handle.status}"


def test_an_attribute_that_cannot_be_stored_is_named_and_says_so_when_it_is_used(store: everstep.Store) -> None:
    _, again = both(store, raising(Carrying(Handle())))
    assert (type(again), again.args, str(again), again.code) == (Carrying, ("carried",), "carried", 7)
    assert again.__everstep_dropped__ == ("handle",)
    with pytest.raises(AttributeError, match=r"handle was not kept .*Handle.*everstep.register"):
        again.handle.status
    with pytest.raises(TypeError, match="handle was not kept"):
        bool(again.handle)
    assert "hidden" not in repr(store.steps("r")[0].error)


def test_an_argument_that_cannot_be_stored_keeps_its_place_and_the_text(store: everstep.Store) -> None:
    live, again = both(store, raising(ValueError(Handle())))
    assert (type(again), str(again), len(again.args), again.__everstep_dropped__) == (ValueError, str(live), 1, ("args[0]",))
    live, again = both(store, raising(ValueError("a", Handle())), "two")
    assert (str(again), again.args[0], again.__everstep_dropped__) == (str(live), "a", ("args[1]",))


def test_a_text_made_from_a_lost_attribute_stays_the_recorded_one(store: everstep.Store) -> None:
    Guarded.ran.clear()
    _, again = both(store, raising(Computed(Handle())))
    assert isinstance(again, Computed)
    assert str(again) == "status 418"
    assert type(again).__qualname__ == "Computed"
    assert set(again.__everstep_dropped__) == {"args[0]", "handle"}
    third = rebuilt(error_body(again), "it#1")  # as the parent of a child run records it
    assert isinstance(third, Computed)
    assert (str(third), third.__everstep_dropped__) == ("status 418", again.__everstep_dropped__)


def test_a_group_keeps_its_members_even_if_parts_of_one_are_lost(store: everstep.Store) -> None:
    group = ExceptionGroup("many", [Carrying(Handle()), ValueError(1)])
    _, again = both(store, raising(group))
    caught: list[str] = []
    try:
        raise again
    except* Carrying as found:
        caught += [str(e) for e in found.exceptions]
    except* ValueError as found:
        caught += [repr(e) for e in found.exceptions]
    assert caught == ["carried", "ValueError(1)"]


def test_an_input_that_pydantic_refused_and_that_cannot_be_stored_is_named(store: everstep.Store) -> None:
    live, again = both(store, raising(invalid(a=Handle())))
    assert (type(again), str(again), again.error_count()) == (pydantic.ValidationError, str(live), 1)
    assert again.__everstep_dropped__ == ("input",)
    assert "hidden" not in repr(store.steps("r")[0].error)


def test_an_async_handler_takes_the_same_way(store: everstep.Store) -> None:
    seen: list[Any] = []

    async def fail() -> None:
        raise httpx.HTTPStatusError("bad", request=REQUEST, response=RESPONSE)

    @everstep.workflow(name="async-twice")
    async def work() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(everstep.current().step("it", fail))
        except* httpx.HTTPStatusError as caught:
            seen.append(caught.exceptions[0].response.status_code)  # type: ignore[union-attr]
        await everstep.gate("wait")

    for _ in range(2):
        out = store.resume("r") if seen else store.start(work, id="r")
        assert out.status == "waiting"
    assert seen == [429, 429]


def test_a_large_attribute_is_left_out_and_named() -> None:
    again = replay(changed(Keyword(code=1, why="w"), body="x" * 2_000_000))
    assert (type(again), again.code, again.__everstep_dropped__) == (Keyword, 1, ("body",))  # type: ignore[attr-defined]
    many = replay(changed(ValueError("v"), **{f"a{n}": "x" * 100_000 for n in range(50)}))
    assert 0 < len(many.__everstep_dropped__) < 50  # type: ignore[attr-defined]
    assert len(error_body(ExceptionGroup("g", [ValueError("x" * 100_000)] * 900))["fields"]) < 3_000_000
    assert isinstance(replay(ExceptionGroup("g", [ValueError(n) for n in range(5_000)])), everstep.StepFailed)


def test_a_class_that_is_not_there_yet_gives_step_failed_and_nothing_is_imported() -> None:
    body = error_body(Keyword(code=1, why="w")) | {"type": "xml.dom.pulldom.Missing"}
    sys.modules.pop("xml.dom.pulldom", None)
    assert isinstance(rebuilt(body, "it#0"), everstep.StepFailed)
    assert "xml.dom.pulldom" not in sys.modules


def test_a_module_that_loads_itself_when_it_is_touched_is_left_alone() -> None:
    spec = importlib.util.find_spec("this")
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    lazy = importlib.util.module_from_spec(spec)
    sys.modules["this"] = lazy
    try:
        spec.loader.exec_module(lazy)
        assert isinstance(rebuilt(error_body(Keyword(code=1, why="w")) | {"type": "this.Missing"}, "it#0"), everstep.StepFailed)
        assert type(lazy).__name__ == "_LazyModule"
    finally:
        del sys.modules["this"]


def test_a_member_of_a_group_whose_class_is_gone_is_a_step_failed_in_its_place() -> None:
    body = error_body(ExceptionGroup("g", [Keyword(code=1, why="w"), ValueError(1)]))
    Keyword.__qualname__ = "Renamed"
    try:
        again: Any = rebuilt(body, "it#0")
    finally:
        Keyword.__qualname__ = "Keyword"
    assert [type(e) for e in again.exceptions] == [everstep.StepFailed, ValueError]


def test_a_class_that_was_defined_again_comes_back_as_the_one_that_handlers_name() -> None:
    first = type("Again", (Exception,), {"__module__": __name__})
    globals()["Again"] = first
    body = error_body(first("x"))
    second = type("Again", (Exception,), {"__module__": __name__})
    assert type(rebuilt(body, "it#0")) is first
    globals()["Again"] = second
    assert type(rebuilt(body, "it#0")) is second
    del globals()["Again"]
    assert type(rebuilt(body, "it#0")) is second


class Billing(Exception):
    def __init__(self, client: Any, number: int):
        super().__init__(f"invoice {number}")
        self.client, self.number = client, number


def test_a_registered_error_is_stored_as_its_program_says(store: everstep.Store) -> None:
    everstep.register(Billing, encode=lambda e: {"number": e.number}, decode=lambda f: Billing("the client", f["number"]))

    def fail() -> None:
        raise noted(Billing(Handle(), 5)) from KeyError("why")

    _, again = both(store, fail)
    assert (type(again), again.client, again.number, str(again)) == (Billing, "the client", 5, "invoice 5")
    assert (repr(again.__cause__), again.__notes__) == ("KeyError('why')", ["first", "second"])


def test_the_error_of_a_child_and_of_an_outcome_keep_their_class(store: everstep.Store) -> None:
    @everstep.workflow(name="kid")
    def kid() -> None:
        raise httpx.HTTPStatusError("bad", request=REQUEST, response=RESPONSE) from Keyword(code=2, why="deep")

    seen: list[Any] = []

    @everstep.workflow(name="parent")
    def parent() -> None:
        try:
            kid()
        except httpx.HTTPStatusError as error:
            seen.append((error.response.status_code, repr(error.__cause__), error.__cause__.code))  # type: ignore[union-attr]
            everstep.current().step("after", str, "x")
            raise Keyword(code=9, why="end") from error

    for _ in range(3):
        out = store.resume("p") if seen else store.start(parent, id="p")
        assert isinstance(out.error, Keyword)
        assert isinstance(out.error.__cause__, httpx.HTTPStatusError)
    assert seen == [(429, "Keyword('deep (2)')", 2)] * 3


def test_masking_reaches_all_parts_of_an_error() -> None:
    key = "sk-" + "a1b2" * 8
    group = ExceptionGroup("g", [changed(ValueError(f"with {key}"), password="hunter22")])
    group.__cause__ = changed(KeyError(key), note={"api_key": "plainword"})
    with everstep.open("memory://", redaction=Redactor.default()) as store:
        _, again = both(store, raising(group))
        kept = repr(store.steps("r")[0].error)
    assert not [secret for secret in (key, "hunter22", "plainword") if secret in kept]
    assert (str(again.exceptions[0]), again.exceptions[0].password) == ("with [redacted]", "[redacted]")
    assert type(again.__cause__) is KeyError


HOSTILE: list[dict[str, Any]] = [
    {"args": (), "attributes": {"__class__": "x"}, "members": {}},
    {"args": (), "attributes": {"__dict__": {"a": 1}}, "members": {}},
    {"args": (), "attributes": {"trap": 5}, "members": {"trap": 5}},
    {"args": (), "attributes": {"__cause__": 1, "__notes__": 5}, "members": {"__dict__": {}, "args": 1}},
    {"args": 5, "attributes": {}, "members": {}},
    {"args": (), "attributes": [], "members": []},
    {"args": ("x",), "attributes": {"trap": 5, "__setstate__": 1}},
    {"members": {"ran": 1}},
    {"args": (), "validation": {"title": "t", "lines": [], "input_type": "python", "hide_input": False}},
    {},
]


@pytest.mark.parametrize("fields", HOSTILE, ids=range(len(HOSTILE)))
def test_a_forged_error_sets_nothing_dangerous_and_runs_nothing(fields: dict[str, Any]) -> None:
    Guarded.ran.clear()
    again: Any = rebuilt({"type": f"{__name__}.Guarded", "message": "m", "fields": encode(fields)}, "it#0")
    assert Guarded.ran == []
    assert isinstance(again, (Guarded, everstep.StepFailed))
    assert type(again).__name__ in ("Guarded", "StepFailed")
    assert again.__cause__ is None
    assert set(vars(type(again))) >= {"__init__"} or isinstance(again, Guarded)


@pytest.mark.parametrize(
    "name", ["KeyboardInterrupt", "SystemExit", "BaseException", "object", "type", "builtins.eval", "subprocess.Popen", "int", None, 5]
)
def test_a_forged_type_that_is_no_exception_class_is_never_made(name: Any) -> None:
    again = rebuilt({"type": name, "message": "m", "fields": encode({"args": ("x",), "attributes": {}, "members": {}})}, "it#0")
    assert type(again) is everstep.StepFailed


def test_forged_parts_of_known_kinds_come_back_inert() -> None:
    for name in ("error", "lost", "httpx.Response", "httpx.Request", "requests.Response", "email.Message", "pydantic", "nothing", "sys"):
        for content in (
            {},
            {"type": 5},
            {"status_code": "x", "headers": 5},
            {"type": "KeyboardInterrupt", "fields": {}},
            {"headers": [[1]], "url": 7},
        ):
            part = everstep.Unknown(f"everstep:{name}", 1, content)
            again = rebuilt(
                {"type": "ValueError", "message": "m", "fields": encode({"args": (part,), "attributes": {}, "members": {}})}, "it#0"
            )
            assert isinstance(again, (ValueError, everstep.StepFailed))
            assert not isinstance(again.args[0], KeyboardInterrupt)


def test_a_forged_group_of_thousands_of_unknown_classes_takes_no_time() -> None:
    members = [
        everstep.Unknown("everstep:error", 1, {"type": f"no.such.Class{n}" * 9, "message": "", "fields": {"args": ()}})
        for n in range(5_000)
    ]
    fields = encode({"args": None, "members": {"message": "m", "exceptions": members}})
    started = time.monotonic()
    again: Any = rebuilt({"type": "ExceptionGroup", "message": "m (5000 sub-exceptions)", "fields": fields}, "it#0")
    assert time.monotonic() - started < 10
    assert {type(e) for e in again.exceptions} == {everstep.StepFailed}


def test_an_older_record_of_an_error_still_comes_back() -> None:
    fields = encode({"args": (2, "gone", "a.txt"), "attributes": {"tries": 3, "__notes__": ["n"]}})
    again: Any = rebuilt({"type": f"{__name__}.Gone", "message": "[Errno 2] gone: 'a.txt'", "traceback": "", "fields": fields}, "it#0")
    assert (type(again), again.args, again.filename, again.tries, again.__notes__) == (Gone, (2, "gone"), "a.txt", 3, ["n"])


PROGRAM = """
import sys
import everstep
import httpx, pydantic, openai

class Odd(Exception):
    __slots__ = ("code",)
    def __init__(self, *, code):
        self.code = code
    def __str__(self):
        return f"odd {self.code}"

class Model(pydantic.BaseModel):
    a: int

def fail(kind):
    if kind == "odd":
        raise Odd(code=7) from KeyError("k")
    if kind == "model":
        Model(a="x")
    if kind == "group":
        raise ExceptionGroup("g", [Odd(code=1), ValueError(2)])
    request = httpx.Request("GET", "http://x/")
    raise httpx.HTTPStatusError("bad", request=request, response=httpx.Response(404, request=request, text="no"))

@everstep.workflow
def work():
    seen = []
    for kind in ("odd", "model", "group", "http"):
        try:
            everstep.current().step("call", fail, kind)
        except Odd as error:
            seen.append([str(error), error.code, repr(error.__cause__)])
        except pydantic.ValidationError as error:
            seen.append([error.title, error.errors(include_url=False)[0]["type"]])
        except httpx.HTTPStatusError as error:
            seen.append([error.response.status_code, error.response.text])
        except ExceptionGroup as group:
            seen.append([repr(group), group.exceptions[0].code])
    print(seen)
    return everstep.gate("wait")

with everstep.open(sys.argv[1]) as store:
    if sys.argv[2] == "start":
        store.start(work, id="w")
    else:
        store.resume("w")
"""


def test_a_handler_takes_the_same_way_in_a_new_process(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    said = []
    for what in ("start", "resume"):
        done = subprocess.run([sys.executable, program, tmp_path / "s.db", what], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said[0] == said[1]
    assert "'odd 7', 7" in said[0]
    assert "404, 'no'" in said[0]


def test_none_of_the_libraries_is_imported_by_everstep() -> None:
    code = (
        "import sys, everstep\nfrom everstep.store.journal.failures import error_body, rebuilt\n"
        "rebuilt(error_body(ExceptionGroup('g', [ValueError(object())])), 'x')\n"
        "print(sorted({'pydantic', 'httpx', 'httpx2', 'openai', 'requests', 'urllib.error', 'http.client'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
