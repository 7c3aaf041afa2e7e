import pytest
from agent_helpers import Ways


@pytest.fixture(params=["sync", "async"])
def ways(request: pytest.FixtureRequest) -> Ways:
    return Ways(request.param)
