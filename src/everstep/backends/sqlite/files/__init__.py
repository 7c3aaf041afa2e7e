"""The file of a store and the files beside it: creating, opening, identifying, syncing."""
