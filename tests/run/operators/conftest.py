"""One random seed for each test, printed with every failure; MEANDER_TEST_SEED repeats it. In CI it is fixed."""

import os
import random

import pytest


@pytest.fixture
def seed() -> int:
    given = os.environ.get("MEANDER_TEST_SEED", "1" if os.environ.get("CI") else None)
    return int(given) if given else random.SystemRandom().randrange(2**32)
