"""Workers under fire: real processes drive runs of a queue while they, their server or their wire are broken, and what came of it is judged.

    ledger    what steps did outside of the store: a line for each time that one was run
    hand      one worker in a process of its own, and the workflow that it drives
    crew      several of them, killed and replaced
    wire      between them and a PostgreSQL server: cut before requests and before replies
    judge     the store against the ledger: every run ended once, nothing that was finished ran again
    scenes    what is broken, where and how often

`python -m harness.workers` runs them; with --deep in full.
"""
