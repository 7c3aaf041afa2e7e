"""Gates and timers, and control of a run from outside: answer, pause, cancel, skip, retry, wake."""
