"""`everstep demo`: an agent is killed, goes on, and decides otherwise. Needs no network, no key and nothing but this package.

`play` is the director, `agent` what is played, `worker` the process that plays it and that is killed.
"""
