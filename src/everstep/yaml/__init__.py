"""YAML workflows: `load` makes a workflow of a document, which `store.start` and `store.resume` take like any other.

    nodes, value                           from text to values that know their line; the language is in `everstep.expressions`
    step, action, plan, document           what a workflow says, checked without running or importing anything
    target, interpreter, scope, invoke     running it: the callables, the order, what expressions see, the calls
    parallel, shell                        several at the same time; commands
    compatible                             whether a run of an older document can go on

Needs PyYAML: `pip install 'everstep[yaml]'`.
"""

from __future__ import annotations

import inspect
import os
from functools import partial
from pathlib import Path
from typing import Any

from everstep.errors import InvalidWorkflow
from everstep.runtime.disabled import OffRun
from everstep.runtime.engine.context import current
from everstep.runtime.engine.owner import place
from everstep.runtime.workflow import Workflow
from everstep.yaml.compatible import reasons
from everstep.yaml.document import Document, parse
from everstep.yaml.interpreter import Walk
from everstep.yaml.invoke import Calls
from everstep.yaml.scope import Scope
from everstep.yaml.target import callables

__all__ = ["load"]


def load(path: str | os.PathLike[str], text: str | None = None) -> Workflow:
    """The workflow of a YAML document: that of a file, or `text`, for which `path` is only the name in messages.

    The Python callables that it names are imported now. The workflow becomes known in this process by its name, so that runs of it
    can be resumed. InvalidWorkflow says in which line something is wrong, and what would be allowed.
    """
    file = Path(path)
    document = parse(_read(file) if text is None else text, str(path))
    found = callables(document)
    folder = str(file.absolute().parent) if text is None else None

    def function(**inputs: Any) -> Any:
        run = current() if place() is not None else OffRun(None, None)  # simply called
        if run.report.changed:  # an operator let it go on, although its inputs may have been declared otherwise
            inputs = {name: value for name, value in inputs.items() if name in document.inputs}
        scope = Scope(run, document.file, document.given(inputs))
        return Walk(document, scope, Calls(scope, found, folder)).go()

    function.__name__ = function.__qualname__ = document.name
    function.__signature__ = _signature(document)  # type: ignore[attr-defined]
    return Workflow(
        function,
        name=document.name,
        version=document.version,
        definition=document.text,
        policy=document.policy,
        retry=document.retry,
        budget=document.budget,
        timeout=document.timeout,
        compatible=partial(reasons, document),
        accepts=lambda **inputs: document.given(inputs),
    )


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidWorkflow(f"cannot be read: {error}", str(file), remedy="Give the path of a YAML file in UTF-8.") from error


def _signature(document: Document) -> inspect.Signature:
    """What the workflow takes, for whoever looks at it."""
    kind, nothing = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    return inspect.Signature(
        [inspect.Parameter(n, kind, default=one.default[0] if one.default else nothing) for n, one in document.inputs.items()]
    )
