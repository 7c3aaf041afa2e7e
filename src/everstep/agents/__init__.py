"""Agents: a loop of thinking and acting, executed in a run."""
