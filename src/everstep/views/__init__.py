"""Typed, masked views of a store, for the command line and for a web page. `json.to_json` writes them as JSON, in the shapes of docs/cli.md.

A view function takes a store and a `Masking`, so no consumer can forget to hide secrets. Never prints, never asks, never writes.
"""
