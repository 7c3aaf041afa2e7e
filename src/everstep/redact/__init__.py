"""Which values are secrets, and how they are masked: `redactor.py` decides by names and patterns, `pairs.py` finds names inside of texts."""

from everstep.redact.redactor import BUILT_IN as BUILT_IN
from everstep.redact.redactor import KEYS as KEYS
from everstep.redact.redactor import MASK as MASK
from everstep.redact.redactor import Redactor as Redactor
from everstep.redact.redactor import check_pattern as check_pattern
