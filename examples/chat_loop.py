"""The smallest loop: a chat that can be stopped at any point and resumes. python examples/chat_loop.py

Run it several times: each time it resumes where it stopped, from .everstep in the current folder or one above it.
"""

import everstep


def model(messages: list[dict[str, str]]) -> str:
    """Replace a real model."""
    return f"You have said {sum(m['role'] == 'user' for m in messages)} things."


with everstep.open() as store, store.run("chat", state={"messages": []}) as run:
    for text in ("Hello", "How many is that?"):
        run.state["messages"].append({"role": "user", "content": text})
        run.state["messages"].append({"role": "assistant", "content": model(run.state["messages"])})
        saved = run.checkpoint(note=text)
        print(f"{saved.ref}: {run.state['messages'][-1]['content']}")
