"""Policies: when a checkpoint is due, how policies are joined, and their text."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.errors import InvalidArgument
from everstep.runtime.limits.policy import EVENTS, Policy, every, is_custom, manual, off, on

names = st.sampled_from([*EVENTS, "custom:deployed", "custom:a.b/c:d-e", "custom:über"])
seconds = st.floats(min_value=0, max_value=1e15, exclude_min=True)
joined = st.builds(Policy, st.none() | st.integers(1, 10**15), st.none() | seconds, st.frozensets(names, max_size=4))
policies = joined | st.just(off)


@given(policies)
def test_the_text_of_a_policy_is_read_back(policy: Policy) -> None:
    assert Policy.parse(str(policy)) == policy


@given(joined)
def test_a_policy_as_a_mapping_is_read_back(policy: Policy) -> None:
    counts = {name: value for name in ("steps", "seconds") if (value := getattr(policy, name)) is not None}
    mapping = {**({"every": counts} if counts else {}), **({"on": sorted(policy.events)} if policy.events else {})}
    assert not mapping or Policy.parse(mapping) == policy


@given(joined, joined, joined)
def test_joining_knows_no_order_and_manual_adds_nothing(a: Policy, b: Policy, c: Policy) -> None:
    assert a | b == b | a
    assert (a | b) | c == a | (b | c)
    assert a | a == a
    assert a | manual == manual | a == a


@given(joined, joined, names, st.none() | st.sampled_from(["llm", "tool", "deployed"]), st.integers(0, 20), st.floats(0, 100))
def test_joined_policies_are_due_when_one_of_them_is(a: Policy, b: Policy, event: str, kind: str | None, steps: int, since: float) -> None:
    now = (event, kind, steps, since)
    assert ((a | b).due(*now) is not None) == (a.due(*now) is not None or b.due(*now) is not None)
    assert manual.due(*now) is None
    assert off.due(*now) is None


@pytest.mark.parametrize(("policy", "now", "trigger"), [
    (every(steps=5), ("post_step", None, 4, 1e9), None), (every(steps=5), ("post_step", None, 5, 0), "every 5 steps"), (every(steps=5), ("post_step", None, 9, 0), "every 5 steps"),
    (every(steps=1), ("post_step", None, 1, 0), "every 1 step"), (every(5), ("post_step", None, 5, 0), "every 5 steps"),
    (every(seconds=30), ("post_step", None, 99, 29.9), None), (every(seconds=30), ("post_step", None, 0, 30), "every 30 s"), (every(seconds=0.5), ("timer", None, 0, 1), "every 0.5 s"),
    (every(2, 30), ("post_step", None, 2, 30), "every 2 steps"), (on("gate") | every(1), ("gate", None, 7, 0), "on gate"),
    (on("step"), ("post_step", None, 0, 0), "on post_step"), (on("step"), ("step", None, 0, 0), "on post_step"), (on("step"), ("post_step", "llm", 0, 0), "on post_step"),
    (on("post_step", "llm"), ("post_step", "llm", 0, 0), "on llm"), (on("step"), ("pre_step", None, 0, 0), None), (on("pre_step"), ("pre_step", "llm", 0, 0), "on pre_step"),
    (on("llm"), ("post_step", "llm", 0, 0), "on llm"), (on("llm"), ("post_step", "tool", 0, 0), None), (on("llm"), ("pre_step", "llm", 0, 0), None), (on("llm"), ("post_step", None, 0, 0), None),
    (on("tool"), ("post_step", "tool", 0, 0), "on tool"), (on("custom:search"), ("post_step", "search", 0, 0), "on custom:search"), (on("custom:search"), ("custom:search", None, 0, 0), "on custom:search"),
    (on("custom:llm"), ("post_step", "llm", 0, 0), None), (on("gate"), ("post_step", "gate", 0, 0), None), (on("error"), ("error", "llm", 0, 0), "on error"),
    (on("error", "milestone"), ("milestone", None, 0, 0), "on milestone"), (on("error"), ("milestone", None, 0, 0), None), (manual, ("post_step", "llm", 99, 99), None), (off, ("post_step", "llm", 99, 99), None),
])  # fmt: skip
def test_when_a_checkpoint_is_due(policy: Policy, now: tuple[str, str | None, int, float], trigger: str | None) -> None:
    assert policy.due(*now) == trigger


@pytest.mark.parametrize(("given", "policy", "text"), [
    ("manual", manual, "manual"), (" off ", off, "off"), (False, off, "off"), ("every step", every(1), "every 1 step"), ("every 5 steps", every(5), "every 5 steps"),
    ("every 30 s", every(seconds=30), "every 30 s"), ("every 2 min", every(seconds=120), "every 120 s"), ("every 1.5 hours", every(seconds=5400), "every 5400 s"), ("every minute", every(seconds=60), "every 60 s"),
    ("every  5  steps|on gate,llm", every(5) | on("gate", "llm"), "every 5 steps | on gate, llm"), ("on gate | on step", on("gate", "step"), "on gate, post_step"),
    ("manual | on gate", on("gate"), "on gate"), ("every 5 steps | every 3 steps", every(3), "every 3 steps"), ("on custom:a.b", on("custom:a.b"), "on custom:a.b"),
    ({"every": {"steps": 5, "seconds": 30}}, every(5, 30), "every 5 steps | every 30 s"), ({"on": "gate"}, on("gate"), "on gate"), ({True: ["gate"]}, on("gate"), "on gate"),
    ({"every": {"steps": 5}, "on": ["gate", "llm"]}, every(5) | on("gate", "llm"), "every 5 steps | on gate, llm"), (every(5), every(5), "every 5 steps"),
])  # fmt: skip
def test_a_policy_is_read(given: Any, policy: Policy, text: str) -> None:
    assert Policy.parse(given) == policy
    assert str(policy) == text


@pytest.mark.parametrize("given", [
    "", "|", "every", "every 5", "every five steps", "every 5 pages", "every 0 steps", "every -5 steps", "every 1.5 steps", "every 0 s", "every 1e999 s", "every 1.2.3 s", "every " + "9" * 5000 + " steps",
    "on", "on ", "on nothing", "on gate,", "on gate llm", "off | on gate", "on gate | off", "off | manual", "OFF", "on custom:", "on custom:a b",
    None, True, 5, [], ["on gate"], {}, {"ever": {"steps": 5}}, {"every": 5}, {"every": {}}, {"every": {"minutes": 5}}, {"every": {"steps": "5"}}, {"on": []}, {"on": [7]}, {"on": {"gate": 1}}, {7: 7},
])  # fmt: skip
def test_what_is_no_policy_is_refused(given: Any) -> None:
    with pytest.raises(InvalidArgument) as refused:
        Policy.parse(given)
    assert refused.value.remedy.startswith(("Use ", "Give ", "Write "))


@given(
    st.text(max_size=30)
    | st.builds(" ".join, st.lists(st.sampled_from(["every", "on", "5", "steps", "s", "|", "gate", ",", "off", "manual", "e+-."])))
)
def test_every_text_is_a_policy_or_refused(text: str) -> None:
    try:
        policy = Policy.parse(text)
    except InvalidArgument:
        return
    assert Policy.parse(str(policy)) == policy


@pytest.mark.parametrize(("make", "words"), [
    (lambda: every(), "needs steps or seconds"), (lambda: every(0), "got 0"), (lambda: every(steps=True), "got True"), (lambda: every(steps=2.0), "got 2.0"),  # type: ignore[arg-type]
    (lambda: every(seconds=0), "got 0"), (lambda: every(seconds=float("nan")), "got nan"), (lambda: every(seconds=float("inf")), "got inf"), (lambda: every(seconds=10**400), "got 1000"),
    (lambda: on(), "needs at least one event"), (lambda: on("gates"), "'gates'"), (lambda: on(["gate"]), "['gate']"), (lambda: on("custom:"), "'custom:'"),  # type: ignore[arg-type]
    (lambda: off | every(5), "off | every 5 steps"), (lambda: every(5) | off, "every 5 steps | off"), (lambda: Policy(steps=5, off=True), "off=True"),
])  # fmt: skip
def test_wrong_arguments_are_refused(make: Any, words: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        make()
    assert words in refused.value.message


def test_an_unknown_event_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidArgument) as refused:
        on("gates")
    assert all(name in refused.value.remedy for name in (*EVENTS, "custom:name"))


def test_a_policy_is_joined_with_policies_only_and_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        every(5) | "on gate"  # type: ignore[operator]
    with pytest.raises(AttributeError):
        manual.steps = 5  # type: ignore[misc]
    assert len({every(5), every(5), every(5) | manual}) == 1


@given(st.text(max_size=5))
def test_a_custom_name_never_holds_what_the_text_of_a_policy_is_made_of(name: str) -> None:
    if is_custom(f"custom:{name}"):
        assert not set(name) & set(" ,|\n\t")
