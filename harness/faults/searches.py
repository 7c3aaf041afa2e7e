"""The counts of the searches of the test suite, from their last full run. They are tests, not harnesses; docs/trust.md lists them beside
those.
"""

from __future__ import annotations

from typing import NamedTuple


class Search(NamedTuple):
    """One search: its subject, the test that runs it, and its result."""

    what: str
    test: str
    found: str


SEARCHES = (
    Search(
        "a store's file is missing or replaced by another one, beside every set of leftover files",
        "tests/backends/test_leftover_files.py",
        "192 cases: 0 acknowledged saves lost",
    ),
    Search("one file by two paths, in every order of open, save and kill", "tests/backends/test_second_paths.py", "48 cases: 0 saves lost"),
    Search(
        "ids that are nearly those of a run, in every public call and command",
        "tests/store/test_exact_ids.py, tests/cli/test_cli_ids.py",
        "1,566 calls: 0 touched the other run",
    ),
    Search(
        "a store is used in the middle of a save of the same thread, at every third line",
        "tests/crash/test_reentry_at_every_line.py",
        "821 points on SQLite, 620 in memory: 0 hung, 0 lost",
    ),
    Search(
        "the state is changed in the middle of a save, at every fifth line of it",
        "tests/live/test_edits_in_a_save.py",
        "774 changes: 0 checkpoints of two moments",
    ),
    Search(
        "interleaved generators, tasks and threads that hold runs",
        "tests/runtime/test_interleaved_generators.py",
        "2,000 programs, 93,809 steps: 0 in the wrong run, 15,304 refused",
    ),
    Search(
        "histories with prune, forks of forks, edits, deleted parents and moved tags, against a model",
        "tests/store/test_time_travel.py",
        "6 histories on each backend in CI: 0 wrong",
    ),
    Search(
        "writes that bypass the methods of live containers",
        "tests/live/test_writes_past_methods.py",
        "400 histories: 0 bases that disagree",
    ),
    Search(
        "the server is unreachable at any commit of random programs with handlers, tasks and children",
        "tests/outages/test_outage_search.py",
        "120 outages: 0 runs failed, 0 finished steps called twice",
    ),
    Search(
        "random programs with handlers, races, cancellation and children, killed at every commit",
        "tests/resume/test_random_programs.py",
        "76 programs: 0 took another path, 0 finished steps called twice",
    ),
)


def table() -> str:
    rows = "\n".join(f"| {one.what} | `{one.test}` | {one.found} |" for one in SEARCHES)
    return f"| search | test | found |\n|---|---|---|\n{rows}"
