"""Storage and retrieval of runs. `store` writes and reads runs; `refs`, `query`, `load` and `chain` serve it; `journal`, `events`,
`travel`, `retention`, `verify` and `repair` have their own folders.
"""
