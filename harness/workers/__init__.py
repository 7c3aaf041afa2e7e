"""Workers under fire: real processes execute runs of a queue while they, their server or their connection are broken, and the result is
judged.

    effects   the effects log: a line for each time that a step ran
    hand      one worker in its own process, and its workflow
    crew      several of them, killed and replaced
    wire      between them and a PostgreSQL server: cut before requests and before replies
    judge     compares the store with the effects log: every run ended once, and no finished step ran again
    scenes    what is broken, where and how often

`python -m harness.workers` runs them; with --deep in full.
"""
