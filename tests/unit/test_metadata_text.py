"""The text of metadata and the numbers that find it are those of json.dumps: stores have both."""

import json
from hashlib import sha256
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from everstep.backends.sqlite.rows import meta_item
from everstep.store.query import RESERVED, to_meta

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
scalars = texts | st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)


@given(st.dictionaries(texts.filter(lambda key: key != RESERVED), scalars, min_size=1, max_size=4))
def test_metadata_is_stored_as_sorted_compact_json(meta: dict[str, Any]) -> None:
    assert to_meta(meta) == json.dumps(meta, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


@given(texts, scalars.map(json.dumps))
def test_a_scalar_is_found_by_the_digest_of_its_key_and_text_as_json(key: str, text: str) -> None:
    assert meta_item(key, text) == int.from_bytes(sha256(json.dumps([key, text]).encode()).digest()[:8], signed=True)
