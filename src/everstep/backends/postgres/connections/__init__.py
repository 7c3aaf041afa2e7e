"""Connections to the server: made, shared, guarded, and what their errors mean."""
