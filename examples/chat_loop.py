"""A chat that can be killed at any point and resumes: python examples/chat_loop.py

Type messages, or pipe them in; an empty line or Ctrl-D ends the chat. The next start continues the same conversation, from .everstep in
the current folder or one above it. The state drives the loop: if the last message has no reply, the model is asked, also if the message was
left by a process that died. A message is saved before the model is asked, and each reply is a step, so none is paid for twice.
"""

from __future__ import annotations

import sys

import everstep


def model(messages: list[dict[str, str]]) -> str:
    """Replace a real model."""
    return f"That was your message number {sum(message['role'] == 'user' for message in messages)}."


def read() -> str:
    """Return the next line; an empty one at the end."""
    if sys.stdin.isatty():
        print("> ", end="", flush=True)
    return sys.stdin.readline().strip()


def main() -> None:
    with everstep.open() as store, store.run("chat", state={"messages": []}) as run:
        while True:
            messages = run.state["messages"]
            if messages and messages[-1]["role"] == "user":
                reply = run.step("reply", model, list(messages))
                messages.append({"role": "assistant", "content": reply})
                saved = run.checkpoint()
                print(f"{saved.ref}: {reply}")
            text = read()
            if not text:
                break
            messages.append({"role": "user", "content": text})
            run.checkpoint(note=text)


if __name__ == "__main__":
    main()
