"""A store in one SQLite file.

`backend` implements the contract. `writer` makes transactions, and `transaction` writes the rows in them; `reader` reads. `leases`
decides which process is alive and takes runs over from dead ones, `queues` claims runs. `files` is the file, `recovery` reads a damaged
one, `sql` has the statements.
"""
