"""Faults on purpose, and what a store makes of them: the harnesses that prove the promises. Shipped, so that anybody can run them.

    workload    a real program whose every acknowledged operation is logged; log is that log, verdict judges a store by it
    count       what a harness counts
    shim        kills and disk errors at the nth file call (shim.c, preloaded); kills and errors are the harnesses on it, scenarios what
                they try, crashes and sweep how; broken has the canaries, patient a program that continues after errors
    full        a disk that is really full
    power       the power lost at every file operation; power_vfs and power_calls record them, power_disk knows what is found afterwards
    flips, files    damage to the bytes and the files of a sample: bench tries it, reads has all there is to read, recall knows what
                damage can touch, frames and rows damage above SQLite, pool uses all cores
    writers, takeovers, beside    several processes at once (actor is one of them): on one run, after a take-over, prune and gc beside them
    clocks      the wall clock set back and forward (wall.c, preloaded, in real processes)
    memory      too little of it; low_memory is what a process does meanwhile
    hostile     bytes and files from an enemy: forge makes them, hostile_frames, _values, _rows and _files list them, uses is all that is done
    machine     random calls against a model in plain dicts; machine_queues has those to queues, compared is how answers are looked at, hands
                make the calls, places are where they can crash
    careless    backends that are broken on purpose, for canaries
    report      all of them, and docs/trust.md; peers is what others do in the same tests

A harness has `run(folder, *, deep, seed, progress) -> Count` and `canary(folder)`: a store that is broken on purpose, which it must
catch. A harness whose fault never fired or whose canary is not caught says nothing, and its count is not ok.
"""
