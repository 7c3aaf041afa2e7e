"""Executes runs. `run` is the handle of a program, `aio` the one for asyncio; `handle` is what both share. `workflow` starts and resumes.

`engine` is one attempt at a run, `steps` its steps, `tasks` the parts that only async runs have, `waits` gates, timers and control from
outside, `limits` budgets, policies, signals and crash loops. `child` calls a workflow in a run; `hooks` and `observe` call functions of
the user.
"""
