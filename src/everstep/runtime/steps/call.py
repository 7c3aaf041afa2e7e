"""Steps: named calls whose result is recorded once. Here a call gets its address.

Numbers are assigned in the order of the program, before anything runs in parallel. `lookup` finds the record of a call, and `drive` runs
the call if there is none.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from everstep.errors import InvalidArgument
from everstep.runtime.engine.context import Frame
from everstep.runtime.steps.drive import drive
from everstep.runtime.steps.lookup import input_bytes, kept, look_up, masked_input
from everstep.runtime.steps.options import ABSENT, PLAIN, StepOptions, check_key, check_name, name_for, shape_of, with_options
from everstep.runtime.steps.ticket import Ticket
from everstep.store.journal.entries import SUCCEEDED

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt


def begin(
    run: Attempt, here: Frame, name: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: dict[str, Any]
) -> Ticket:
    """Number a call, and look up its record."""
    plain, options, title, key, args = _resolve(here, name, function, args, given)
    return look_up(Ticket(run, plain, _number(run, here, title, key), args, kwargs, options))


def call(run: Attempt, here: Frame, name: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: dict[str, Any]) -> Any:
    """Number a call and run it to its end, in this thread. There is a fast path to a recorded result, because a replay spends its time there."""
    plain, options, title, key, args = _resolve(here, name, function, args, given)
    address = _number(run, here, title, key)
    replay = run.replay
    found = replay.entries.get(address)
    if found is not None and key is None and not options.ignore and not run.dry:
        step = found.entry
        data = (
            input_bytes(address, args, kwargs) if run.mask is None else masked_input(run, shape_of(plain, options), address, args, kwargs)
        )
        if step.status == SUCCEEDED and step.digest == sha256(data).digest()[:16]:
            replay.requested.add(address)
            kept(run, address, step)
            return replay.loaded(step)
    return drive(look_up(Ticket(run, plain, address, args, kwargs, options)))


def _resolve(here: Frame, name: Any, function: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """Return the parts of a call: the function itself, its options, its name, its key, and its arguments."""
    if not isinstance(name, str):
        args = args if function is ABSENT else (function, *args)
        name, function = None, name
    if not callable(function):
        raise no_function(name, function)
    plain, options = getattr(function, "__everstep__", None) or (function, PLAIN)
    if not isinstance(options, StepOptions):
        plain, options = function, PLAIN
    if given:
        options = with_options(options, given)
    title = name_for(plain, options) if name is None else name if name in here.counts else check_name(name)  # a counted name was checked
    return plain, options, title, None if options.key is None else check_key(options.key), args


def no_function(name: Any, function: Any) -> InvalidArgument:
    """Return the error of a step that has nothing to call."""
    said = f"a step must be a function, got {function!r:.60}"
    if function is ABSENT:
        said = f"run.step needs a function, got {'nothing' if name is None else f'only the name {name!r:.60}'}"
    return InvalidArgument(said, remedy='Use run.step("name", function, *args) or run.step(function, *args).')


def _number(run: Attempt, here: Frame, title: str, key: str | None) -> str:
    numbering, branches = run.numbering, run.branches
    if numbering.owned():
        numbering.check()  # a signal interrupted this code: two calls would get one number
    with numbering:
        if run.is_async or not branches.ask_alone():
            branches.ask(run.branch())
        return here.address(title, key)
