"""How people say by which policy fragments change slots."""

from __future__ import annotations

import pytest

from meander.coordinator.options import CoordinatorOptions
from meander.model.errors import InputError
from meander.run.rebinding.options import OFF, USUAL, rebinding_by
from meander.run.rebinding.policies import POLICIES


def test_every_policy_can_be_chosen_and_none_is_needed_for_one_slot() -> None:
    for policy in POLICIES:
        found = rebinding_by(policy.name, 2)
        assert found is not None
        assert found.policy == policy.name
        assert rebinding_by(policy.name, 1) is None
    assert rebinding_by(OFF, 4) is None


def test_a_policy_that_is_not_known_is_refused_before_anything_starts() -> None:
    with pytest.raises(InputError, match=r"'stedy'.*steady") as error:
        CoordinatorOptions(rebinding="stedy", slots=2).check()
    assert OFF in str(error.value)
    CoordinatorOptions(rebinding=USUAL, slots=2).check()
