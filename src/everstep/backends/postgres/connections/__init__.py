"""Connections to the server: creating, sharing and guarding them, and translating their errors."""
