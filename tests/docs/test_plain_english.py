"""Plain English: phrases that readers stumble over stay at zero, and docstrings of public names say what they do or are."""

from __future__ import annotations

import inspect
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.runtime.aio import AsyncRun

ROOT = Path(__file__).parents[2]
TEXTS = ("src", "docs", "examples", "harness", "benchmarks", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
ENDINGS = {".py", ".sql", ".md", ".toml", ".c"}

START = r"(?:^|[.;!] |\"\"\"|(?<!#)# |-- )"
PHRASES = {
    "stand": r"\bst(?:ands?|ood)\b(?! for\b)",
    "go on": r"\b(?:go|goes|going|gone|went) on\b(?! (?:a|the)\b)",
    "is no": r"(?<!\bthere )\b(?:is|are|was|were) no (?!longer\b|more\b)",
    "nobody": r"\b(?:nobody|somebody|whoever)\b",
    "anew": r"\banew\b",
    "inverted conditional": rf"{START}(?:Was|Is|Are|Were|Has|Had|Have|Does|Did|Should) (?:it|one|a|an|the|there|any|this|that)\b(?![^.\n]*\?)[^.\n]*,",
    "free relative": rf"{START}(?:Who|Whom|Whose|What) (?!to\b|if\b)(?![^.\n]*\?)[a-z]+ [^\n]*[.:;,]",
    "who sleeps": r"\bwho (?:sleeps?|leads?|leaves?|waits|asks)\b",
    "for good": r"\bfor good\b(?! in\b)",
    "is told": r"\b(?:is|are|was|were|be|been|being) told\b",
    "let go": r"\b(?:lets?|letting) go\b",
    "hear": r"\b(?:hears|heard of|is heard|be heard)\b",
    "bear": r"\bbears?\b",
    "all the same": r"\ball the same\b(?! \w)",
    "other idioms": r"\b(?:for ever|as ever|in peace|to be had|the other way round|gets? on with|is none of|stays? apart|no harm)\b",
}
"""From shared habits that were counted once: 212 times "is no", 148 "stands", 154 "goes on", 175 "nobody"."""

ALLOWED = {
    ("src/everstep/demo/corpus.py", "stand"): "notes in the demo, which are quoted: the sun stands high, a mast has stood",
    ("src/everstep/demo/corpus.py", "free relative"): "notes in the demo, which are quoted",
    ("src/everstep/testing/postgres.py", "nobody"): "a user of the system",
    ("src/everstep/testing/conformance/audit.py", "other idioms"): "literally: a check that is stopped does no harm",
}


def files() -> Iterator[str]:
    listed = subprocess.run(["git", "ls-files", *TEXTS], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split("\n")
    found = [name for name in listed if name] or [str(path.relative_to(ROOT)) for part in TEXTS for path in _under(ROOT / part)]
    return (name for name in found if Path(name).suffix in ENDINGS and (ROOT / name).is_file())


def _under(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("*"))


def lines(name: str) -> Iterator[tuple[int, str]]:
    """The lines of a file as a reader sees them, each with the first words of the next one: a phrase may be broken over two.

    In documents quoted code is left out; names of tests and functions are read as words.
    """
    whole = (ROOT / name).read_text(encoding="utf-8")
    if name.endswith(".md"):
        whole = re.sub(r"`[^`\n]*`", "`…`", whole)
    texts = re.sub(r"(?<=[a-z])_(?=[a-z])", " ", whole).split("\n")
    for number, (text, following) in enumerate(zip(texts, [*texts[1:], ""], strict=True), 1):
        yield number, " ".join([text, *following.split()[:3]])


def found(phrase: str, text: str) -> bool:
    flags = 0 if phrase in ("inverted conditional", "free relative") else re.IGNORECASE
    return re.search(PHRASES[phrase], text, flags) is not None


def test_no_phrase_that_readers_stumble_over() -> None:
    wrong = [
        f"{name}:{number}: {phrase}: {text.strip()[:140]}"
        for name in files()
        for number, text in lines(name)
        for phrase in PHRASES
        if found(phrase, text) and (name, phrase) not in ALLOWED
    ]
    assert wrong == [], "say it in plain words; CONTRIBUTING.md has pairs"


def test_every_exception_is_needed() -> None:
    needless = [key for key in ALLOWED if not any(found(key[1], text) for _, text in lines(key[0]))]
    assert needless == []


@pytest.mark.parametrize(
    ("phrase", "text"),
    [
        ("stand", "Only runs that stand so."),
        ("go on", "the program that drives it goes on with it"),
        ("is no", "concurrency=[1, 2] is no whole number"),
        ("nobody", "and nobody drives them"),
        ("anew", "doesn't begin to wait anew"),
        ("inverted conditional", "Was it a store, then put a copy of it back."),
        ("inverted conditional", "# Is it none, the caller looks again"),
        ("free relative", "What was sent before stays apart from what was not."),
        ("free relative", '"""Who writes it stores it as it is."""'),
        ("for good", "Once it holds, it holds for good: read only a few states."),
        ("is told", "one who asks is told so"),
        ("let go", "a lock that the thread could not let go"),
    ],
)
def test_the_phrases_are_found(phrase: str, text: str) -> None:
    assert found(phrase, text)


@pytest.mark.parametrize(
    ("phrase", "text"),
    [
        ("is no", "there is no store at x"),
        ("is no", "the run is no longer in a queue"),
        ("stand", "a standby server, on standard output; what a code stands for"),
        ("inverted conditional", "Is it safe to delete a run, and when?"),
        ("is told", "it tells the caller"),
    ],
)
def test_plain_sentences_are_left_alone(phrase: str, text: str) -> None:
    assert not found(phrase, text)


# docstrings of public names

DETERMINERS = frozenset({"A", "An", "The", "One", "Two", "Each", "Every", "All", "No", "Whether"})
"""First words of the docstring of a class or attribute: a noun phrase. `Whether` begins one that is true or false."""

VERBS = re.compile(
    r"Add|Answer|Apply|Ask|Begin|Call|Cancel|Change|Check|Close|Continue|Convert|Count|Create|Decide|Delete|Describe|Drop|Emit|End|"
    r"Enqueue|Execute|Find|Flush|Fork|Free|Give|Import|Keep|Leave|Limit|List|Load|Make|Mark|Mask|Name|Open|Pause|Prune|Put|Raise|Read|"
    r"Record|Refuse|Register|Release|Remove|Repair|Replace|Report|Reset|Restore|Resume|Return|Run|Save|Schedule|Send|Set|Show|Skip|"
    r"Start|Stop|Store|Tag|Take|Turn|Undo|Update|Use|Verify|Wait|Wake|Walk|Write"
)
"""First words of the docstring of a function: what it does, as a command."""


def public() -> Iterator[tuple[str, Any]]:
    """The names in `everstep.__all__`, and the public methods and properties of the classes among them."""
    for name in everstep.__all__:
        thing = getattr(everstep, name)
        yield name, thing
        if inspect.isclass(thing):
            yield from members(name, thing)
    yield from members("AsyncRun", AsyncRun)


def members(name: str, cls: type) -> Iterator[tuple[str, Any]]:
    for base in cls.__mro__:
        for key, value in vars(base).items() if base.__module__.startswith("everstep") else ():
            if not key.startswith("_") and isinstance(value, (property, classmethod, staticmethod, type(public))):
                yield f"{name}.{key}", value


def fault(thing: Any) -> str | None:
    text = inspect.getdoc(thing) or ""
    first = text.split("\n\n")[0]
    if not first:
        return "has no docstring"
    word = re.split(r"[^A-Za-z]", first)[0]
    if inspect.isclass(thing) and issubclass(thing, BaseException):
        return None if re.match(r"[A-Z].*[.]", first, re.DOTALL) else "must be a sentence: what happened"
    if inspect.isfunction(getattr(thing, "__func__", thing)):
        return None if VERBS.fullmatch(word) else "must start with a verb, as a command"
    return None if word in DETERMINERS else f"must start with one of {', '.join(sorted(DETERMINERS))}"


def test_docstrings_of_public_names_start_with_a_verb_or_a_noun_phrase() -> None:
    wrong = [f"{name} {said}: {(inspect.getdoc(thing) or '')[:80]!r}" for name, thing in public() if (said := fault(thing)) is not None]
    assert wrong == []


def test_a_docstring_that_begins_otherwise_is_found() -> None:
    def who() -> None:
        """What holds for the runs that chose none."""

    class Clumsy:
        """Who sleeps is given."""

    def silent() -> None:
        pass

    assert [fault(thing) is not None for thing in (who, Clumsy, silent)] == [True, True, True]
