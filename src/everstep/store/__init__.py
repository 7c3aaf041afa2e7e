"""Storage and retrieval of runs. `store` writes and reads runs; `refs`, `query`, `load` and `chain` serve it; `masking` hides secrets
before they are written; `journal`, `events`, `travel`, `retention`, `verify` and `repair` have their own folders.
"""
