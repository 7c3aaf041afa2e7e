"""A store in a PostgreSQL database.

`backend` implements the contract. `writer` makes transactions, and `commit` and `fast_commit` write in them. `leases` decides which
process is alive and takes runs over from dead ones, `queues` claims runs. `format` has the tables, `connections` the connections,
`recovery` reads a damaged store, `sql` has the statements.
"""
