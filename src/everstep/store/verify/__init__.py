"""Verification of a store, and checks of how it is configured and kept."""
