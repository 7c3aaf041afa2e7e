"""Parts that adapters of agent frameworks share: plain data, approvals, and runs that are started or resumed by their id."""
