"""The protocols that a backend implements. The docstrings are the contract.

Every backend implements `core`. The others are capabilities: `mailbox`, `index`, `feed`, `queues`, `outbox`, `properties`, `audit`,
`reclaim` and `transactions`; `capability` checks which ones a backend has. `recovery` is what repair needs. `types` has the values that
are passed, `query_semantics` the meaning of a query.
"""
