"""What Everstep costs, held against bars: `python -m benchmarks`.

Each row file measures one thing and yields lines for one table. Ratios are formed inside one run in which ours and
the floors take turns operation by operation, because a disk drifts by more than the bars from minute to minute.
Nothing here is imported by the package.
"""
