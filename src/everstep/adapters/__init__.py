"""Adapters: agents of other frameworks as durable runs. Each framework has a module of its own, and an extra that installs it."""
