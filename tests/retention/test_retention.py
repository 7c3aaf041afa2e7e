"""Retention, the pure part: what stays and why, against a plain model, and that nonsense is refused."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from everstep.errors import InvalidArgument
from everstep.store.retention.retention import KINDS, PROTECTED, Decision, Point, Retention, decide, fewest

DAY = 86_400_000_000
NOW = int(datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp()) * 1_000_000
NAMES = ("milestone", "release", "backup", "good", "bad")

points = st.lists(
    st.builds(
        Point,
        number=st.just(0),
        at=st.integers(NOW - 40 * DAY, NOW + 2 * DAY),
        kind=st.sampled_from(KINDS),
        tags=st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple),
        bytes=st.integers(0, 1000),
        good=st.booleans(),
    ),
    max_size=40,
).map(lambda found: [Point(i + 1, p.at, p.kind, p.tags, p.bytes, p.good) for i, p in enumerate(found)])
few = st.none() | st.integers(1, 8)
policies = st.builds(
    Retention,
    keep_last=few,
    keep_within=st.none() | st.integers(0, 40 * 86_400),
    keep_daily=few,
    keep_weekly=few,
    keep_tagged=st.none() | st.booleans() | st.lists(st.sampled_from(NAMES), max_size=2),
    keep_kinds=st.none() | st.lists(st.sampled_from(KINDS), max_size=2),
    completed=st.sampled_from(["all", "final"]),
    minimum=st.integers(1, 5),
)
pins = st.dictionaries(st.integers(1, 40), st.just("pinned"), max_size=3)


def naive(found: list[Point], policy: Retention, pinned: dict[int, str], protected: tuple[str, ...], ended: bool) -> set[int]:
    """The numbers that stay, said as plainly as can be."""
    if not found:
        return set()
    order = sorted(found, key=lambda p: p.number, reverse=True)
    stay = {order[0].number} | set(pinned) | {p.number for p in order[: policy.minimum]}
    stay |= {p.number for p in order if set(p.tags) & set(protected)}
    stay |= {p.number for p in [p for p in order if p.good][:1]}
    given = [policy.keep_last, policy.keep_within, policy.keep_daily, policy.keep_weekly, policy.keep_tagged, policy.keep_kinds]
    if ended and policy.completed == "final":
        return stay & {p.number for p in found}
    if all(rule is None for rule in given):
        return {p.number for p in found}
    stay |= {p.number for p in order[: policy.keep_last or 0]}
    if policy.keep_within is not None:
        assert isinstance(policy.keep_within, timedelta)
        stay |= {p.number for p in order if moment(NOW) - moment(p.at) <= policy.keep_within}
    stay |= newest_of_each(order, lambda at: moment(at).date(), policy.keep_daily or 0)
    stay |= newest_of_each(order, lambda at: moment(at).isocalendar()[:2], policy.keep_weekly or 0)
    if policy.keep_tagged is True:
        stay |= {p.number for p in order if p.tags}
    elif policy.keep_tagged:
        stay |= {p.number for p in order if set(p.tags) & set(policy.keep_tagged)}  # type: ignore[arg-type]
    stay |= {p.number for p in order if p.kind in (policy.keep_kinds or ())}
    return stay & {p.number for p in found}


def moment(at: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)


def newest_of_each(order: list[Point], period: Any, most: int) -> set[int]:
    newest: dict[Any, int] = {}
    for point in order:
        newest.setdefault(period(point.at), point.number)
    return set(list(newest.values())[:most])


@given(points, policies, pins, st.booleans())
@example([], Retention(keep_last=1), {}, True)
def test_what_stays_is_what_a_plain_model_says(found: list[Point], policy: Retention, pinned: dict[int, str], ended: bool) -> None:
    made = decide(found, policy, NOW, pinned=pinned, ended=ended)
    assert [d.number for d in made] == [p.number for p in found]
    assert {d.number for d in made if d.kept} == naive(found, policy, pinned, PROTECTED, ended)


@given(points, policies, pins, st.booleans(), st.randoms(use_true_random=False))
def test_decisions_depend_on_nothing_but_the_records(
    found: list[Point], policy: Retention, pinned: dict[int, str], ended: bool, chance: random.Random
) -> None:
    made = decide(found, policy, NOW, pinned=pinned, ended=ended)
    shuffled = list(found)
    chance.shuffle(shuffled)
    assert decide(shuffled, policy, NOW, pinned=pinned, ended=ended) == made
    assert all(d.reason for d in made)
    assert [d.bytes for d in made] == [p.bytes for p in found]


@given(points, policies, pins, st.booleans())
def test_what_must_stay_stays_and_says_so(found: list[Point], policy: Retention, pinned: dict[int, str], ended: bool) -> None:
    made = {d.number: d for d in decide(found, policy, NOW, pinned=pinned, ended=ended)}
    good = [p.number for p in found if p.good]
    must = {*(n for n in pinned if n in made), *([found[-1].number] if found else []), *good[-1:]}
    must |= {p.number for p in found if set(p.tags) & set(PROTECTED)} | {p.number for p in found[-policy.minimum :]}
    assert {n for n, d in made.items() if d.firm} == must
    assert all(made[n].kept for n in must)
    if found:
        assert made[found[-1].number].reason == "head"


@given(points, policies, st.integers(1, 8))
def test_a_rule_more_never_drops_more(found: list[Point], policy: Retention, more: int) -> None:
    if not policy.rules:
        return
    before = {d.number for d in decide(found, policy, NOW) if d.kept}
    for name in ("keep_last", "keep_daily", "keep_weekly"):
        if getattr(policy, name) is None:
            wider = Retention.parse({**policy.to_dict(), name: more})
            assert before <= {d.number for d in decide(found, wider, NOW) if d.kept}


@given(points, policies)
def test_asked_again_about_what_stayed_nothing_more_goes(found: list[Point], policy: Retention) -> None:
    stayed = {d.number for d in decide(found, policy, NOW) if d.kept}
    left = [p for p in found if p.number in stayed]
    assert all(d.kept for d in decide(left, policy, NOW))


def at(day: int, hour: int = 12) -> int:
    return int(datetime(2026, 11, day, hour, tzinfo=UTC).timestamp()) * 1_000_000


def reasons(found: list[Point], policy: Retention, **options: Any) -> dict[int, str]:
    return {d.number: ("+ " if d.kept else "- ") + d.reason for d in decide(found, policy, NOW, **options)}


def test_each_rule_names_itself() -> None:
    found = [
        Point(1, at(1), "manual", ("good",)),
        Point(2, at(2), "gate"),
        Point(3, at(3), "automatic", ("milestone",)),
        Point(4, at(8), "automatic"),
        Point(5, at(13, 8), "automatic"),
        Point(6, at(13, 9), "automatic"),
        Point(7, at(14), "automatic"),
        Point(8, at(15, 3), "automatic"),
        Point(9, at(15, 4), "automatic"),
    ]
    policy = Retention(keep_last=2, keep_within=86_400, keep_daily=3, keep_weekly=2, keep_tagged=["good"], keep_kinds=["gate"])
    assert reasons(found, policy, pinned={2: "fork f starts here", 4: "newest base"}) == {
        1: "+ tagged good",
        2: "+ fork f starts here",
        3: "+ protected tag milestone",
        4: "+ newest base",
        5: "- not kept by keep_last=2, keep_daily=3, keep_weekly=2, keep_within=1 day, keep_tagged=good, keep_kinds=gate",
        6: "+ daily 2026-11-13",
        7: "+ keep_within=1 day",
        8: "+ keep_last=2",
        9: "+ head",
    }
    assert reasons(found[:3], Retention(keep_weekly=2))[1] == "+ weekly 2026-W44"
    assert reasons(found[:3], Retention(keep_kinds="gate"))[2] == "+ kind gate"


def test_the_newest_good_one_stays_when_the_head_is_damaged() -> None:
    found = [Point(1, NOW), Point(2, NOW), Point(3, NOW, good=False), Point(4, NOW, good=False)]
    assert reasons(found, Retention(keep_last=1)) == {
        1: "- not kept by keep_last=1",
        2: "+ the newest good one",
        3: "- not kept by keep_last=1",
        4: "+ head",
    }


def test_without_a_rule_nothing_goes() -> None:
    found = [Point(n, n) for n in range(1, 6)]
    for policy in (Retention(), Retention(max_bytes=1), Retention(completed="final"), Retention(keep_tagged=[], keep_kinds=())):
        assert {r for n, r in reasons(found, policy).items() if n != 5} == {"+ no rule drops it"}


def test_of_a_run_that_has_ended_the_final_checkpoint_and_what_is_protected_stay() -> None:
    found = [Point(1, NOW, tags=("release",)), Point(2, NOW, tags=("mine",)), Point(3, NOW), Point(4, NOW)]
    policy = Retention(keep_last=10, completed="final")
    assert reasons(found, policy, ended=True, protected=("release", "mine")) == {
        1: "+ protected tag release",
        2: "+ protected tag mine",
        3: '- the run has ended and completed="final"',
        4: "+ head",
    }
    assert all(r.startswith("+") for r in reasons(found, policy, ended=False).values())
    assert reasons(found, Retention(completed="final", minimum=2), ended=True)[3] == "+ minimum=2"


def test_a_clock_that_was_set_back_or_forward_changes_no_order() -> None:
    found = [Point(1, at(20)), Point(2, at(1)), Point(3, at(14)), Point(4, at(14, 1))]
    kept = {d.number: d.reason for d in decide(found, Retention(keep_last=1, keep_daily=2), NOW) if d.kept}
    assert kept == {4: "head", 2: "daily 2026-11-01"}  # 4 stands for the 14th, and then comes the 1st, by number
    assert reasons(found, Retention(keep_within=1))[1].startswith("+ keep_within")  # made tomorrow, as far as anybody can tell


def test_a_time_that_no_calendar_has_is_still_a_day() -> None:
    found = [Point(1, 10**18), Point(2, 10**18 + DAY), Point(3, -(10**18)), Point(4, NOW)]
    kept = {d.number: d.reason for d in decide(found, Retention(keep_daily=3, keep_weekly=1), NOW) if d.kept}
    assert kept == {4: "head", 3: "daily day -11574075", 2: "daily day 11574075"}


@given(st.lists(st.tuples(st.none() | st.integers(0, 12), st.integers(0, 100)), max_size=30), st.integers(0, 10), st.integers(0, 800))
def test_no_more_goes_than_must(weights: list[tuple[int | None, int]], most: int, limit: int) -> None:
    def left(gone: int) -> int:
        return sum(size for place, size in weights if place is None or min(place, most) > gone)

    found = fewest(weights, most, limit)
    enough = [gone for gone in range(most + 1) if left(gone) <= limit]
    assert found == (enough[0] if enough else most)


@given(policies)
def test_a_policy_can_be_stored(policy: Retention) -> None:
    assert Retention.parse(json.loads(json.dumps(policy.to_dict()))) == policy


def test_equal_policies_are_equal_however_they_are_written() -> None:
    one = Retention(keep_within=60, keep_tagged=["b", "a", "a"], keep_kinds="gate")
    assert one == Retention(keep_within=timedelta(minutes=1), keep_tagged=("a", "b"), keep_kinds={"gate"})
    assert Retention.parse(one) is one
    assert hash(one) == hash(Retention.parse(one.to_dict()))
    assert Retention(keep_tagged=False) == Retention()
    assert Retention(keep_last=3, max_bytes=10).to_dict() == {"keep_last": 3, "max_bytes": 10}


@pytest.mark.parametrize(("given", "words"), [
    ({"keep_last": 0}, "got 0"), ({"keep_last": True}, "got True"), ({"keep_last": 1.5}, "got 1.5"), ({"keep_last": 2**64}, "got 1844"),
    ({"keep_daily": -1}, "keep_daily must be an integer of at least 1, got -1"), ({"keep_weekly": "7"}, "got '7'"), ({"minimum": 0}, "minimum must be an integer of at least 1, got 0"), ({"max_bytes": -1}, "max_bytes must be an integer of at least 0, got -1"),
    ({"keep_within": -1}, "got -1"), ({"keep_within": float("nan")}, "got nan"), ({"keep_within": 1e300}, "got 1e+300"), ({"keep_within": "30x"}, "got '30x'"),
    ({"keep_within": True}, "got True"), ({"keep_tagged": 7}, "keep_tagged must be a tag or a list of them, got 7"), ({"keep_tagged": ["a b"]}, "invalid tag 'a b'"), ({"keep_kinds": ["daily"]}, "got 'daily'"),
    ({"keep_kinds": 3}, "keep_kinds must be a kind of checkpoint or a list of them, got 3"), ({"completed": "none"}, "got 'none'"), ({"completed": None}, "got None"), ({"completed": "delete"}, "needs keep_within"),
    ({"keep": 3}, "no field 'keep'"), ({7: 3}, "no field 7"), (None, "got None"), ([], "got []"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(given: Any, words: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        Retention.parse(given)
    assert words in refused.value.message


def test_a_decision_reads_as_a_sentence() -> None:
    assert str(Decision(7, True, "head", 1234, True)) == "keep 7: head (1,234 bytes)"
    assert str(Decision(3, False, "not kept by keep_last=1", 0)) == "drop 3: not kept by keep_last=1 (0 bytes)"
