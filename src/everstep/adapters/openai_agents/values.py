"""Values of the framework as plain data, which a step records, and back. No I/O.

A recorded value must be the same in another process, which may not have loaded the class of an object. So objects are kept as plain data
or as their text, and the first attempt uses that form, too: a resumed run can't differ from one that was never interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents import ModelResponse, ToolOutputFileContent, ToolOutputImage, ToolOutputText
from agents.usage import deserialize_usage, serialize_usage
from openai.types.responses import Response
from pydantic import BaseModel

from everstep.adapters.shared.plain import is_plain, to_plain, to_text

_OUTPUTS: dict[str, type[BaseModel]] = {cls.__name__: cls for cls in (ToolOutputText, ToolOutputImage, ToolOutputFileContent)}
_OUTPUT = "openai_agents.output"
SPENT = "openai_agents.usage"
_COMPARED = ("role", "type", "call_id", "name", "arguments", "content", "output")


def keep_output(value: Any) -> Any:
    """Return what a step keeps of the result of a tool. Objects other than structured outputs become text, as for the model."""
    if isinstance(value, BaseModel) and _OUTPUTS.get(type(value).__name__) is type(value):
        return {_OUTPUT: type(value).__name__, "fields": value.model_dump(mode="json")}
    if type(value) is list:
        return [keep_output(item) for item in value]
    return value if is_plain(value) else str(value)


def give_output(kept: Any) -> Any:
    """Return the result of a tool that a step has kept."""
    if type(kept) is list:
        return [give_output(item) for item in kept]
    if type(kept) is dict and kept.get(_OUTPUT) in _OUTPUTS:
        return _OUTPUTS[kept[_OUTPUT]].model_validate(kept["fields"])
    return kept


def keep_response(response: ModelResponse) -> dict[str, Any]:
    """Return what a step keeps of a model's response."""
    kept: dict[str, Any] = {
        "output": [_keep_item(item) for item in response.output],
        "usage": serialize_usage(response.usage),
        "response_id": response.response_id,
    }
    if response.request_id is not None:
        kept["request_id"] = response.request_id
    if response.raw_usage is not None:
        kept["raw_usage"] = response.raw_usage
    return kept


def _keep_item(item: Any) -> Any:
    return item.model_dump(mode="json", exclude_unset=True) if isinstance(item, BaseModel) else to_plain(item)


def give_response(kept: Mapping[str, Any]) -> ModelResponse:
    """Return the response that a step has kept. Items are built as the client builds them: unknown fields and types are kept."""
    return ModelResponse(
        output=Response.construct(output=kept["output"]).output,
        usage=deserialize_usage(kept["usage"]),
        response_id=kept["response_id"],
        request_id=kept.get("request_id"),
        raw_usage=kept.get("raw_usage"),
    )


def compared(items: Any) -> Any:
    """Return the part of a model's input that a resume compares: who said what, without ids and labels, which versions change."""
    if isinstance(items, str):
        return items
    return [
        {name: to_text(item[name]) for name in _COMPARED if name in item} if isinstance(item, Mapping) else to_text(item) for item in items
    ]
