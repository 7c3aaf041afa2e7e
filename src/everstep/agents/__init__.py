"""Agents: a loop of thinking and acting, driven in a run."""
