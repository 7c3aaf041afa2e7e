"""The cost of Everstep, compared with limits: `python -m benchmarks`.

Each row file measures one thing and yields lines for one table. Ratios are formed inside one run in which our operations and the floors
alternate one by one, because a disk drifts by more than the limits from minute to minute. The package imports nothing from here.
"""
