"""One attempt at a run: what it writes, what it replays, how it ends, and which process may execute it.

`attempt` has its state. `opening` begins it and takes the lease, `leases` renews leases, `replay` has what was recorded, `messages` what
was sent to the run. `saves` decides on checkpoints, `journal_writer` writes commits. `finish` ends the attempt; `release` does so if the
store failed. `context` and `owner` find the run that the calling code belongs to.
"""
