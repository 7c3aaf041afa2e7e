"""Harnesses of encryption: the key of a store is replaced, and a plain store becomes an encrypted one.

scenarios   the two actions on a small store, and how the result is judged
keys        kill -9 and power loss at every file call of both
"""
