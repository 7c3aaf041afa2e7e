"""A reader written from docs/format.md alone: it knows nothing of the package. It loads every checkpoint of a store and compares.

Section names in the comments are those of the document. `store_to_read` makes the store and says what ought to come out.
"""

from __future__ import annotations

import ast
import json
import sys
import zlib
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import apsw
import msgpack
import pytest
import store_to_read

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


class Bad(Exception):
    """The store is not what the document says."""


@dataclass
class Thing:
    """An object of a program that this reader does not know."""

    name: str
    version: int
    fields: dict[str, Any]


@dataclass
class Array:
    """A numpy array, unread."""

    dtype: Any
    shape: list[int]
    order: str
    data: bytes


PARTS = {
    "chunks": 1, "run_tags": 2, "run_meta": 2, "tags": 4, "messages": 8, "feed": 16, "pruned": 32, "bases": 32, "tombstones": 64, "properties": 128,
    "tasks": 256, "starts": 256, "ticks": 256,
}  # fmt: skip


@dataclass
class Seen:
    """What the reader met, so that the test can tell that all of the format was exercised."""

    kinds: Counter[str] = field(default_factory=Counter)
    compressions: Counter[int] = field(default_factory=Counter)
    extensions: Counter[int] = field(default_factory=Counter)
    operations: Counter[int] = field(default_factory=Counter)
    references: Counter[str] = field(default_factory=Counter)
    levels: Counter[int] = field(default_factory=Counter)


def pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


# Frames


def unwrap(frame: bytes, seen: Seen) -> bytes:
    if len(frame) < 2 or frame[0] != 1:
        raise Bad("frame version")
    flags = frame[1]
    if flags not in (0, 1, 2):
        raise Bad("frame flags")
    seen.compressions[flags] += 1
    if flags == 0:
        return frame[2:]
    size = int.from_bytes(frame[2:6], "big")
    if size > 256 << 20 or (size > 1 << 20 and size > 1000 * len(frame)):
        raise Bad("frame caps")
    if flags == 1:
        unzstd = zstd.ZstdDecompressor()
        content, ended, rest = unzstd.decompress(frame[6:], max_length=size + 1), unzstd.eof, unzstd.unused_data
    else:
        ungzip = zlib.decompressobj(31)
        content, ended, rest = ungzip.decompress(frame[6:], size + 1), ungzip.eof, ungzip.unused_data
    if len(content) != size or not ended or rest:
        raise Bad("frame length")
    return bytes(content)


# Values


def secret(data: bytes) -> Thing:
    if data[:8] != b"\xc1Secret\xc1" or data[8:9] not in (b"t", b"b"):
        raise Bad("a Secret")
    return Thing("Secret", 0, {"value": data[9:].decode() if data[8:9] == b"t" else data[9:]})


class Values:
    """Decodes values; `resolve` serves references."""

    def __init__(self, seen: Seen, resolve: Any = None):
        self.seen = seen
        self.resolve = resolve

    def decode(self, data: bytes) -> Any:
        return msgpack.unpackb(data, ext_hook=self.extension, raw=False, strict_map_key=False)

    def pairs(self, data: bytes) -> list[tuple[Any, Any]]:
        flat = self.decode(data)
        return list(zip(flat[::2], flat[1::2], strict=True))

    def extension(self, code: int, data: bytes) -> Any:
        self.seen.extensions[code] += 1
        if code == 30:
            if self.resolve is None:
                raise Bad("a reference outside of a base")
            return self.resolve(*self.decode(data))
        if code in (5, 10, 11, 16, 23):
            return self.from_bytes(code, data)
        if code in (2, 3):
            members = [self.decode(member) for member in self.decode(data)]
            return set(members) if code == 2 else frozenset(members)
        if code in (4, 17, 19):
            pairs = self.pairs(data)
            return dict(pairs) if code == 4 else OrderedDict(pairs) if code == 17 else Counter(dict(pairs))
        return self.from_array(code, self.decode(data))

    @staticmethod
    def from_bytes(code: int, data: bytes) -> Any:
        if code == 5:
            return int.from_bytes(data, "big", signed=True)
        if code == 10:
            return UUID(bytes=data)
        if code == 23:
            return secret(data)
        return Decimal(data.decode("ascii")) if code == 11 else bytearray(data)

    def from_array(self, code: int, items: Any) -> Any:
        if code == 1:
            return tuple(items)
        if code == 6:
            return datetime(*items[:7], fold=items[7], tzinfo=self.zone(items[8]))
        if code == 8:
            return time(*items[:4], fold=items[4], tzinfo=self.zone(items[5]))
        if code == 15:
            return (PurePosixPath if "Posix" in items[0] else PureWindowsPath)(items[1])
        if code == 18:
            return deque(items[1], items[0])
        if code == 22:
            return Array(items[0], [], "C", items[1])
        makers: dict[int, Any] = {7: date, 9: timedelta, 12: Fraction, 13: complex, 14: range, 20: Thing, 21: Array}
        if code not in makers:
            raise Bad(f"extension {code}")
        return makers[code](*items)

    @staticmethod
    def zone(zone: Any) -> Any:
        if zone is None:
            return None
        return ZoneInfo(zone) if isinstance(zone, str) else timezone(timedelta(seconds=zone[0], microseconds=zone[1]), zone[2])


# Deltas


def apply(value: Any, operations: list[Any], seen: Seen) -> Any:
    for code, path, *rest in operations:
        seen.operations[code] += 1
        if not path:
            value = rest[0] if code == 0 else splice(value, *rest)
            continue
        holder = at(value, path[:-1])
        if code == 0:
            holder[path[-1]] = rest[0]
        elif code == 1:
            del holder[path[-1]]
        elif code in (2, 3):
            holder[path[-1]] = splice(holder[path[-1]], *rest)
        else:
            raise Bad(f"operation {code}")
    return value


def splice(old: Any, start: int, deleted: int, new: Any) -> Any:
    return old[:start] + new + old[start + deleted :]


def at(value: Any, path: list[Any]) -> Any:
    value = value.fields if isinstance(value, Thing) else value
    for step in path:
        value = value[step]
        value = value.fields if isinstance(value, Thing) else value
    return value


# Run rows, tags, the manifest


class Store:
    """One store file."""

    def __init__(self, path: Path):
        self.seen = Seen()
        self.file = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        if self.file.pragma("application_id") != 0x45565354 or self.file.pragma("user_version") != 1:
            raise Bad("not a store of format 1")

    def rows(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        cursor = self.file.cursor()
        cursor.row_trace = lambda c, row: dict(zip([d[0] for d in c.get_description()], row, strict=True))
        return list(cursor.execute(sql, values))

    def table(self, name: str) -> list[dict[str, Any]]:
        """All rows of a table; none of one whose part was not made."""
        (manifest,) = self.rows("SELECT parts FROM manifest")
        made = bool(manifest["parts"] & PARTS[name])
        assert made is bool(self.rows("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", name))
        return self.rows(f"SELECT * FROM {name}") if made else []

    def run(self, name: str) -> dict[str, Any]:
        (row,) = self.rows("SELECT * FROM runs WHERE id = ?", name)
        if self.check_of(row) != row["check"]:
            raise Bad("run row")
        return row

    @staticmethod
    def check_of(row: dict[str, Any]) -> bytes:
        names = (
            "id key family workflow session tags note meta parent parent_number created_at status updated_at head_seq head_digest "
            "checkpoints stored epoch worker since"
        )
        return sha256(pack([texts(row[n]) if n == "tags" else row[n] for n in names.split()])).digest()

    def prove_manifest(self) -> None:
        (manifest,) = self.rows("SELECT * FROM manifest")
        runs, tags = self.rows("SELECT * FROM runs"), self.table("tags")
        for row in runs:
            assert self.check_of(row) == row["check"]
        for tag in tags:
            assert sha256(pack([tag["key"], tag["name"], tag["number"], tag["at"]])).digest() == tag["check"]
        marks, bases, tombstones = (self.table(table) for table in ("pruned", "bases", "tombstones"))
        for m in marks:
            ranges, numbers = msgpack.unpackb(m["ranges"]), msgpack.unpackb(m["numbers"])
            assert sha256(pack([m["key"], ranges, m["freed"], m["at"], numbers])).digest() == m["check"]
        for b in bases:
            assert sha256(pack([b["key"], b["number"], b["at"], b["body"]])).digest() == b["check"]
        for t in tombstones:
            names = "pk id key family created_at at head_seq head_digest checkpoints"
            assert sha256(pack([t[name] for name in names.split()])).digest() == t["check"]
        properties = self.table("properties")
        for found in properties:
            assert sha256(pack([found["name"], found["value"]])).digest() == found["check"]
        parts = [*runs, *tags, *self.table("messages"), *marks, *bases, *tombstones, *properties]
        total = sum(int.from_bytes(part["check"], "big") for part in parts) % 2**256
        forgotten = [pk for found in properties if found["name"].startswith("deleted:") for pk in listed(found["value"])]
        assert sorted([*(part["pk"] for part in [*runs, *tombstones]), *forgotten]) == list(range(1, manifest["next"]))
        assert manifest["total"] == total.to_bytes(32, "big")
        assert manifest["runs"] == len(runs)
        assert manifest["next"] > max(row["pk"] for row in runs)

    # Records and the chain

    def records(self, row: dict[str, Any], first: int, last: int) -> list[dict[str, Any]]:
        found = self.rows("SELECT * FROM records WHERE id BETWEEN ? AND ? ORDER BY id", row["pk"] << 31 | first, row["pk"] << 31 | last)
        if [record["id"] & 0x7FFFFFFF for record in found] != list(range(first, last + 1)):
            raise Bad("a gap")
        before = bytes(32) if first == 1 else None
        for seq, record in enumerate(found, first):
            if before is not None and self.digest_of(row, seq, record, before) != record["digest"]:
                raise Bad(f"record {seq}")
            before = record["digest"]
        if last == row["head_seq"] and before != row["head_digest"]:
            raise Bad("the head")
        return found

    @staticmethod
    def digest_of(row: dict[str, Any], seq: int, record: dict[str, Any], before: bytes) -> bytes:
        r = record
        checkpoint = r["kind"] == "checkpoint"
        header = pack([row["key"], seq, r["kind"], r["epoch"], r["at"], r["number"], r["own"] if checkpoint else r["note"]])
        there = checkpoint and (r["note"], r["tags"], r["meta"]) != (None, None, None)
        parts = pack([r["note"], texts(r["tags"]), r["meta"]])
        labels = sha256((r["labels"] or b"") + parts).digest() if there else (r["labels"] or b"") if checkpoint else b""
        body = r["body_digest"] if r["body"] is None else sha256(r["body"]).digest()
        return sha256(before + header + body + labels).digest()

    # Bases, references and chunks

    def content(self, family: bytes, digest: bytes) -> bytes:
        (chunk,) = self.rows("SELECT frame FROM chunks WHERE family = ? AND digest = ?", family, digest)
        content = unwrap(chunk["frame"], self.seen)
        if sha256(content).digest() != digest:
            raise Bad("chunk")
        return content

    def base_values(self, family: bytes) -> Values:
        def resolve(kind: str, count: int, level: int, digest: bytes) -> Any:
            self.seen.references[kind] += 1
            self.seen.levels[level] += 1
            digests = [digest] if digest else []
            for _ in range(level):
                digests = [entry[0] for d in digests for entry in msgpack.unpackb(self.content(family, d))]
            contents = [self.content(family, d) for d in digests]
            if kind == "l":
                items = [item for content in contents for item in values.decode(content)]
                assert len(items) == count
                return items
            if kind == "d":
                pairs = [pair for content in contents for pair in values.pairs(content)]
                assert len(pairs) == count
                return dict(pairs)
            data = b"".join(contents)
            assert len(data) == count
            return {"s": bytes.decode, "b": bytes, "a": bytearray, "v": values.decode}[kind](data)

        values = Values(self.seen, resolve)
        return values

    # Loading a checkpoint, step by step

    def load(self, name: str, number: int) -> Any:
        row = self.run(name)
        if not 1 <= number <= row["checkpoints"]:
            raise Bad("no such checkpoint")
        for mark in (mark for mark in self.table("pruned") if mark["run"] == row["pk"]):
            if any(first <= number <= last for first, last in msgpack.unpackb(mark["numbers"])):
                raise Bad("pruned")
        low, high = row["pk"] << 31, row["pk"] << 31 | row["head_seq"]
        (target,) = self.rows("SELECT id FROM records WHERE id BETWEEN ? AND ? AND kind = 'checkpoint' AND number = ?", low, high, number)
        bases = self.rows(
            "SELECT id FROM records WHERE id BETWEEN ? AND ? AND kind = 'base' AND number <= ? ORDER BY id DESC LIMIT 1", low, high, number
        )
        start = bases[0]["id"] - low if bases else 1
        last = max(start, target["id"] - low)
        records = self.records(row, max(1, start - 1), last)
        value, since, body = None, 0, None
        if bases:
            base = next(record for record in records if record["id"] - low == start)
            since, body = base["number"], base["body"]
        deltas = [r for r in records if r["kind"] == "checkpoint" and since < r["number"] <= number]
        if (bases and body is None) or any(r["body"] is None for r in deltas):
            since, body = self.added(row, number)
            deltas = [r for r in deltas if r["number"] > since]
            if any(r["body"] is None for r in deltas):
                raise Bad("pruned")
        if body is not None:
            value = self.base_values(row["family"]).decode(unwrap(body, self.seen))
        if [r["number"] for r in deltas] != list(range(since + 1, number + 1)):
            raise Bad("deltas")
        for record in deltas:
            operations = Values(self.seen).decode(unwrap(record["body"], self.seen))
            if operations is None:
                raise Bad("a nil delta without its base")
            value = apply(value, operations, self.seen)
        return value

    def added(self, row: dict[str, Any], number: int) -> tuple[int, bytes]:
        """The newest base that pruning added at or before a checkpoint."""
        there = [base for base in self.table("bases") if base["run"] == row["pk"] and base["number"] <= number]
        found = sorted(there, key=lambda base: -int(base["number"]))[:1]
        if not found:
            raise Bad("pruned")
        (base,) = found
        if sha256(pack([base["key"], base["number"], base["at"], base["body"]])).digest() != base["check"] or base["key"] != row["key"]:
            raise Bad("an added base")
        return base["number"], base["body"]

    def history(self, name: str) -> list[tuple[str, Any]]:
        """Every record of a run, proven from the first to the head, with its content where that is a plain map."""
        row = self.run(name)
        records = self.records(row, 1, row["head_seq"])
        self.seen.kinds.update(record["kind"] for record in records)
        return [
            (r["kind"], Values(self.seen).decode(unwrap(r["body"], self.seen)) if r["kind"] in ("start", "status") else None)
            for r in records
        ]


def listed(pks: str) -> list[int]:
    """The numbers in a text such as 2-4,8."""
    parts = [part.split("-") for part in pks.split(",")]
    return [pk for part in parts for pk in range(int(part[0]), int(part[-1]) + 1)]


def texts(column: str | None) -> list[str]:
    return [] if column is None else json.loads(column)


# The tests


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, dict[str, list[Any]]]:
    path = tmp_path_factory.mktemp("format") / "store.db"
    expected = store_to_read.make(path, Thing, Array)
    return Store(path), expected


def test_this_reader_knows_nothing_of_the_package() -> None:
    tree = ast.parse(Path(__file__).read_text())
    names = {alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names - sys.stdlib_module_names == {"apsw", "backports", "msgpack", "pytest", "store_to_read"} | (
        {"compression"} - sys.stdlib_module_names
    )


def test_every_checkpoint_is_what_the_store_says(made: tuple[Store, dict[str, list[Any]]]) -> None:
    store, expected = made
    for name, states in expected.items():
        assert store.run(name)["checkpoints"] == len(states)
        for number, state in enumerate(states, 1):
            if state is None:
                with pytest.raises(Bad, match="pruned"):
                    store.load(name, number)
                continue
            found = store.load(name, number)
            assert found == state, f"{name}@{number}"
            assert shape(found) == shape(state), f"{name}@{number}"
    seen = store.seen
    assert set(seen.compressions) == {0, 1, 2}
    assert set(seen.operations) == {0, 1, 2, 3}
    assert set(seen.references) == set("ldsbav")
    assert {0, 1, 2} <= set(seen.levels)
    assert set(seen.extensions) == {*range(1, 24), 30}


def test_a_pruned_run_has_what_was_kept_and_an_added_base(made: tuple[Store, dict[str, list[Any]]]) -> None:
    store, expected = made
    kept = [number for number, state in enumerate(expected["pruned"], 1) if state is not None]
    assert {41, 91, 92, *range(len(expected["pruned"]) - 4, len(expected["pruned"]) + 1)} <= set(kept)
    assert len(kept) < 60
    assert store.rows("SELECT count(*) AS n FROM bases")[0]["n"] >= 1


def test_the_chain_the_manifest_and_the_tags_prove_themselves(made: tuple[Store, dict[str, list[Any]]]) -> None:
    store, expected = made
    store.prove_manifest()
    for name in expected:
        store.history(name)
    assert set(store.seen.kinds) == {"start", "checkpoint", "base", "status"}
    assert store.rows("SELECT number FROM tags WHERE name = 'later'") == [{"number": 2}]


def test_a_fork_says_where_it_comes_from_and_a_failure_why(made: tuple[Store, dict[str, list[Any]]]) -> None:
    store, _ = made
    kind, about = store.history("child")[0]
    assert kind == "start"
    assert (about["parent"], about["number"]) == ("main", 3)
    assert store.run("child")["family"] == store.run("main")["family"] == store.run("main")["key"]
    low = store.run("main")["pk"] << 31
    (origin,) = store.rows("SELECT digest FROM records WHERE id > ? AND number = 3 AND kind = 'checkpoint' ORDER BY id LIMIT 1", low)
    assert about["digest"] == origin["digest"]
    error = store.history("child")[-1][1]["error"]
    assert (error["type"], error["message"]) == ("RuntimeError", "out of money")


def shape(value: Any) -> Any:
    """The types and the order of everything in a value, which == does not tell apart."""
    if isinstance(value, dict):
        return type(value), [(shape(k), k, shape(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple, deque)):
        return type(value), [shape(v) for v in value]
    if isinstance(value, Thing):
        return Thing, value.name, shape(value.fields)
    return type(value)
