"""An agent with a real model: OPENAI_API_KEY=… python examples/real_model.py "Which city has more people, Lisbon or Oslo?"

Needs `pip install openai`. Every reply is recorded: kill the program and start it again with the same question, and it continues without
paying for a finished call. Ask again after the end, and the answer comes from the store. OPENAI_MODEL chooses the model; OPENAI_BASE_URL
chooses another server with the same API, for example a local one. For other clients, return their reply from `think` in the same way.
"""

from __future__ import annotations

import hashlib
import os
import sys
from typing import Any

import everstep

MODEL = os.environ.get("OPENAI_MODEL", "gpt-4o-mini")
PEOPLE = {"Lisbon": 567_000, "Oslo": 717_000, "Bern": 134_000}
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "people",
            "description": "Return how many people live in a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


def people(city: str) -> str:
    return f"{PEOPLE[city]:,}" if city in PEOPLE else f"unknown; known are {', '.join(PEOPLE)}"


def main(question: str) -> None:
    try:
        from openai import APIConnectionError, OpenAI, RateLimitError
    except ImportError:
        sys.exit("This example needs the client of a provider: pip install openai")
    client = OpenAI(max_retries=0)  # Everstep retries, and records each attempt

    def think(state: everstep.AgentState) -> Any:
        return client.chat.completions.create(model=MODEL, messages=state.messages, tools=TOOLS)

    retry = everstep.Retry(attempts=5, delay=2, only=(APIConnectionError, RateLimitError))
    agent = everstep.AgentLoop(think, tools=[people], retry=retry, max_turns=10, budget=everstep.Budget(tokens=20_000))
    run_id = f"question-{hashlib.sha256(question.encode()).hexdigest()[:8]}"  # the same question is the same run
    with everstep.open() as store:
        out = agent.run(store, run_id, question)
        state = everstep.AgentState(store.load(run_id))
    print(out.report)
    print(f"{state.tokens:,} tokens, tools {state.tool_counts}; see: everstep log {run_id}")
    print(out.unwrap())


if __name__ == "__main__":
    if not os.environ.get("OPENAI_API_KEY"):
        sys.exit("Set OPENAI_API_KEY to run this example. All other examples need no key and no network.")
    main(" ".join(sys.argv[1:]) or "Which city has more people, Lisbon or Oslo?")
