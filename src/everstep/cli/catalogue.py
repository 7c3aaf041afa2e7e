"""The names of all commands with one line of help each, their aliases, and the words that people try instead. Imports no command."""

from __future__ import annotations

SECTIONS: dict[str, dict[str, str]] = {
    "Start": {
        "demo": "Watch an agent survive kill -9, in about ten seconds",
        "new": "Write a small agent, workflow or pipeline with its test",
        "init": "Create a store in this folder",
        "run": "Run a workflow: a YAML file or package.module:function",
        "shell": "Open an interactive shell",
    },
    "Inspect": {
        "runs": "List runs, filter them, draw their forks as a tree",
        "show": "Show a run, one of its steps or one of its checkpoints",
        "log": "Print the timeline of a run, or its steps as a graph",
        "events": "Print the events of all runs, and follow them",
        "audit": "Print who did what when to a run, with a proof that nothing is missing",
        "state": "Print the state of a checkpoint",
        "diff": "Compare two states",
        "blame": "Find the checkpoint that last changed a part of the state",
        "bisect": "Find the first checkpoint at which a condition is true",
        "stats": "Count runs, steps, resumes, bytes and queues",
    },
    "Control runs": {
        "resume": "Continue a run that stopped",
        "wake": "Resume every run that is due",
        "fork": "Create a run from a checkpoint, optionally with an edited state",
        "inbox": "List the open gates of all runs",
        "answer": "Answer a gate that a run waits at",
        "retry": "Mark a failed step to be run again",
        "skip": "Mark an unfinished step as done, with a result",
        "pause": "Stop runs at their next step; `resume` continues them",
        "cancel": "End runs at their next step; they cannot be resumed",
        "delete": "Delete runs with all their states",
    },
    "Queues and workers": {
        "worker": "Take runs from queues and run them, and recover those of dead workers",
        "workers": "List live workers with their queues and runs",
        "enqueue": "Add a run of a workflow to a queue",
        "queues": "List queues with their runs and recent events",
        "limit": "Limit how many runs of a queue run at once, and how many start in a given time",
        "schedule": "Enqueue a workflow on a cron schedule",
        "schedules": "List schedules with their next times",
        "unschedule": "Remove a schedule",
    },
    "Save and restore": {
        "checkpoint": "Save a JSON state, from a script in any language",
        "restore": "Print a saved state as JSON, unmasked",
        "tag": "Tag a checkpoint",
    },
    "Maintain the store": {
        "prune": "Drop the states of checkpoints that retention does not keep",
        "gc": "Free chunks that nothing refers to",
        "cleanup": "Delete ended runs, prune and gc, by the retention policies",
        "verify": "Check the store for damage",
        "heads": "Write the newest record of every run, signed, for `verify --against`",
        "repair": "Copy the undamaged data of a store into a new one",
        "encrypt": "Change a plain store to an encrypted one",
        "rekey": "Replace the key of an encrypted store",
        "doctor": "Report unsafe settings and leftovers",
        "migrate": "Bring a store to the format of this version",
    },
    "Set up": {
        "config": "Show, check or rewrite the configuration",
        "completion": "Print the completion script for bash, zsh or fish",
        "explain": "Explain an error code",
        "help": "List the commands, or explain one",
    },
}
COMMANDS = {name: sentence for section in SECTIONS.values() for name, sentence in section.items()}
ALIASES = {"ls": "runs", "ps": "workers", "rm": "delete"}
_WORDS = {
    "runs": "list find search filter jobs tasks workflows instances sessions threads tree forks children all",
    "runs --status crashed": "crashed dead orphans",
    "runs --status failed": "failed failures errors",
    "show RUN": "status info inspect describe get view details cat input output result results outcome checkpoints snapshots versions",
    "show RUN STEP": "step traceback attempts",
    "log": "logs history timeline trace steps journal graph",
    "log RUN --follow": "wait await join",
    "events --follow": "tail watch follow stream feed monitor",
    "inbox": "gates gate approvals pending todo questions waiting signals",
    "answer": "approve reject reply respond accept decide signal",
    "resume": "continue recover unpause start-again replay proceed",
    "retry": "again redo rerun",
    "run": "start exec execute launch invoke call trigger",
    "cancel": "kill stop abort terminate end",
    "pause": "suspend hold freeze",
    "delete": "remove del destroy drop erase forget",
    "fork": "branch clone copy rewind rollback undo revert travel",
    "diff": "compare delta changes",
    "state": "print dump value vars variables",
    "blame": "annotate why",
    "audit": "who accountability compliance",
    "bisect": "when",
    "stats": "count usage cost costs metrics statistics summary report",
    "wake": "due tick poke",
    "worker": "serve server daemon work consume agent",
    "workers": "processes top nodes",
    "enqueue": "submit push add queue send dispatch",
    "queues": "backlog stranded",
    "schedule": "cron every",
    "schedules": "crontab timers",
    "unschedule": "unsched",
    "limit": "limits throttle rate ratelimit concurrency",
    "checkpoint": "save store snapshot put commit set",
    "restore": "load export read checkout",
    "tag": "label mark name",
    "prune": "trim shrink",
    "gc": "vacuum compact collect reclaim",
    "cleanup": "clean purge retention expire",
    "verify": "check fsck validate test integrity",
    "heads": "sign seal attest proof notarize",
    "repair": "fix heal salvage",
    "doctor": "health diagnose lint",
    "migrate": "upgrade update",
    "encrypt": "encryption cipher secure",
    "rekey": "rotate rotation key keys password passphrase",
    "config show": "settings options env configure setup",
    "config validate": "check-config",
    "completion": "complete completions autocomplete",
    "explain": "error code codes",
    "shell": "repl console interactive tui ui",
    "demo": "example examples tutorial tour quickstart hello",
    "init": "create",
    "new": "scaffold generate template starter",
    "help": "man usage commands docs",
    "--version": "version",
}
OTHER_WORDS = {word: command for command, words in _WORDS.items() for word in words.split()}
"""Words that people type for a command of another name. Each leads to a suggestion; none runs a command."""


def meant(word: str, names: dict[str, str] | None = None) -> list[str]:
    """Return the command lines, without `everstep`, that a word which is not a command may mean: the likeliest first."""
    from difflib import get_close_matches

    known = COMMANDS if names is None else names
    word = word.lower()
    if word in known:
        return [word]
    near = get_close_matches(word, [*known, *ALIASES], 3, 0.7)
    near = near or [name for name in known if sorted(name) == sorted(word)]  # swapped letters of a short name: `lgo`
    if word in OTHER_WORDS:
        first = OTHER_WORDS[word]
        return [first, *(name for name in near if name != first.partition(" ")[0] and word not in name)][:3]
    if near:
        return near
    return list(dict.fromkeys(OTHER_WORDS[one] for one in get_close_matches(word, OTHER_WORDS, 2, 0.75)))
