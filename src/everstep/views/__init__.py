"""Typed, masked answers about a store, for the command line and for a web page. Each is JSON by `json.to_json`, in the shapes that docs/cli.md lists.

A view function takes a store and a `Masking`, so that no consumer can forget to hide secrets. Never prints, never asks, never writes.
"""
