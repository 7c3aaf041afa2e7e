"""Names: what a run and a tag may be called."""

import pytest

from everstep.errors import InvalidArgument
from everstep.ids import check_id, check_tag


@pytest.mark.parametrize(
    "hidden", ["\u00ad", "\u061c", "\u180e", "\u200b", "\u200f", "\u202e", "\u2060", "\u2066", "\u206f", "\ufeff"], ids=ascii
)
def test_two_names_never_look_alike_because_of_what_cannot_be_seen(hidden: str) -> None:
    for check in (check_id, check_tag):
        assert check("order") == "order"
        with pytest.raises(InvalidArgument):
            check(f"or{hidden}der")
