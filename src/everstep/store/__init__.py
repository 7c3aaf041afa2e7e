"""What is kept and how it is found again: `store` writes and reads runs; `refs`, `query`, `reading`, `forking`, `history`, `verify` serve it."""
