"""YAML workflows: `load` turns a document into a workflow, which `store.start` and `store.resume` take like any other.

    nodes, value                           from text to values that know their line; the language is in `everstep.expressions`
    step, action, plan, document           the content of a workflow, checked without running or importing anything
    target, interpreter, scope, invoke     execution: the callables, the order, the names in expressions, the calls
    parallel, shell                        several steps at the same time; commands
    compatible                             whether a run of an older document can be resumed

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
from everstep.runtime.engine.owner import current_frame
from everstep.runtime.workflow import AnyWorkflow, Workflow
from everstep.yaml.compatible import reasons
from everstep.yaml.document import Document, parse
from everstep.yaml.interpreter import Walk
from everstep.yaml.invoke import Calls
from everstep.yaml.scope import Scope
from everstep.yaml.target import callables

__all__ = ["load"]


def load(path: str | os.PathLike[str], text: str | None = None) -> AnyWorkflow:
    """Load a workflow from a YAML file, or from `text`; then `path` is only the name used in messages.

    The Python callables that it names are imported now. The workflow is registered in this process by its name, so that its runs can be
    resumed. InvalidWorkflow names the line of a mistake and what is allowed there.
    """
    file = Path(path)
    document = parse(_read(file) if text is None else text, str(path))
    found = callables(document)
    folder = str(file.absolute().parent) if text is None else None

    def function(**inputs: Any) -> Any:
        run = current() if current_frame() is not None else OffRun(None, None)  # called as a plain function
        if run.report.changed:  # an operator allowed it to continue, although the declared inputs may have changed
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
        raise InvalidWorkflow(
            f"cannot be read: {getattr(error, 'strerror', None) or error}", str(file), remedy="Give the path of a YAML file in UTF-8."
        ) from error


def _signature(document: Document) -> inspect.Signature:
    """Return the signature of the workflow, for tools that inspect it."""
    kind, nothing = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    return inspect.Signature(
        [inspect.Parameter(n, kind, default=one.default[0] if one.default else nothing) for n, one in document.inputs.items()]
    )
