"""Adapters: one package for each agent framework, imported only on demand. Built on the public names of Everstep; nothing imports them."""
