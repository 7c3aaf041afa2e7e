"""`everstep demo`: an agent is killed, resumes, and decides differently in a fork. Needs no network, no key and only this package.

`play` directs the demo, `agent` is the workflow, `worker` the process that runs it and is killed.
"""
