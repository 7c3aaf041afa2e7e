"""From one state to the next: `compared.py` finds the difference of a container that replaced another, `sharing.py` applies deltas without changing the state before."""
