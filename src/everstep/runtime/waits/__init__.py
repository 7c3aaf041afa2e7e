"""Gates and timers, and control of a run from outside: answer, pause, cancel, skip, retry, wake.

`control` sends an answer or a command to a run. `gates` asks the question, and records the answer when the run reads it. The modules
`answer_*` check answers.
"""
