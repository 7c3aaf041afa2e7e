"""Steps: named calls whose results are recorded once.

`call` numbers a call, `lookup` finds its record, `drive` runs it, `record` writes its record, and `retry` decides whether it is tried
again. `ticket` is one call, `options` are its options. `parallel` runs several, `open_step` is for steps that other code executes.
"""
