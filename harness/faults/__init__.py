"""Faults on purpose, and what a store makes of them: the harnesses that prove the promises. Not in the installed package.

    workload    a real program whose every acknowledged operation is logged; model has its expected states, log is that log, verdict
                judges a store by it
    count       the count of one harness
    scenarios   what programs do under kills and disk errors
    kills       kills at every file call (shim.c, preloaded by shim): crashes and sweep try them; writers and takeovers have several
                processes
    disk        errors at every file call, a disk that is really full, and the power lost at every file operation (power, power_vfs,
                power_calls, power_disk); retrying_program continues after errors
    damage      damage to the bits, files and pages of a sample (flips, files, stale): trial tries it, reads has everything that can be
                read, recall finds the reads that damage can affect, frames and rows damage above SQLite, pool uses all cores
    machine     random calls against a model in plain dicts (machine, oracle, actions, queues); places says where they can crash; clocks
                sets the wall clock (wall.c, preloaded), upkeep_race runs prune and gc beside writers
    memory      too little memory; low_memory has the calls of such a process
    hostile     bytes and files from an attacker: forge makes them; frames, values, rows and files list them
    actor       a separate process that executes commands, and can be stopped and killed
    format_0    an older format, for migrations
    broken_backends, broken_programs    broken on purpose, for canaries
    report      runs all harnesses and writes docs/trust.md; peers and searches have the results of other libraries and of the tests

A harness has `run(folder, *, deep, seed, progress) -> Count` and `canary(folder)`: a store that is broken on purpose, which it must
catch. If the fault never happens or the canary is not caught, the harness proves nothing, and its count is not ok.
"""
