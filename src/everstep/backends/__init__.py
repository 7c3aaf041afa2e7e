"""Backends store the bytes. `contract` has the protocols of a backend; `memory`, `sqlite` and `postgres` are
backends; `registry` finds the one for an address; `wrap` reports or counts the calls to one. The other modules are
code that several backends share.

This module imports nothing: a program that uses one backend loads only that one.
"""
