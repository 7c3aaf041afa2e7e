"""What is kept and how it is found again: `store` writes and reads runs; `refs`, `query`, `load`, `chain` serve it; `journal`, `events`,
`travel`, `retention`, `verify` and `repair` have folders of their own."""
