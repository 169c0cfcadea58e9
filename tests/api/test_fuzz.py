"""The API fuzzed from its own description: whatever is sent, the answer is one that the description promises."""

from __future__ import annotations

from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from meander.api import make_app
from meander.api.coordinator import Coordinator
from meander.coordinator.change_reader import ChangeReader
from meander.coordinator.read_model.hub import Hub
from meander.coordinator.security.tokens import Tokens
from meander.coordinator.service.service import Service
from meander.model.placement import violations
from tests.coordinator.world import Browser

EXAMPLES = 12
CHECKS = (not_a_server_error, content_type_conformance, response_schema_conformance)


def description() -> Any:
    """The API's description; it is the same for every coordinator."""
    api = make_app(Service(Hub("fuzz"), Tokens(), ChangeReader({}, {}))).openapi()
    return schemathesis.openapi.from_dict(api).exclude(path_regex="/stream$")  # it does not end


api = description()


@api.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_one_that_the_description_promises(case: Any, coordinator: Coordinator) -> None:
    response = case.call(base_url=coordinator.address, headers={"Authorization": f"Bearer {coordinator.token}"})
    case.validate_response(response, checks=CHECKS)


NAMES = st.sampled_from(["f0", "f1", "f2", "f3", "e0", "cloud"])
FRESH = st.sampled_from(["f0", "f1", "f2", "f3"])
EVENTS = st.one_of(
    st.builds(lambda n, k: {"event": "node_added", "name": n, "kind": k}, FRESH, st.sampled_from(["edge", "sensor"])),
    st.builds(lambda n: {"event": "node_removed", "node": n}, FRESH),
    st.builds(lambda a, b, ms: {"event": "link_added", "source": a, "target": b, "latency_ms": ms}, FRESH, NAMES,
              st.floats(0, 100)),
    st.builds(lambda a, b: {"event": "link_removed", "source": a, "target": b}, FRESH, NAMES),
    st.builds(lambda n, s: {"event": "capacity_changed", "node": n, "slots": s}, FRESH, st.integers(-2, 9)),
    st.builds(lambda r: {"event": "rate_changed", "stream": "noise", "rate_tps": r}, st.floats(-1, 50)),
)  # fmt: skip


def test_changes_that_nobody_would_make_leave_a_valid_placement(coordinator: Coordinator) -> None:
    browser = Browser(coordinator.address, coordinator.token)

    class Changes(RuleBasedStateMachine):
        @rule(events=st.lists(EVENTS, min_size=1, max_size=4))
        def change(self, events: list[dict[str, Any]]) -> None:
            before = browser.get("/topology")
            answer = browser.ask("POST", "/events", {"events": events})
            assert answer.status in (200, 422), answer.body
            if answer.status == 422:
                assert browser.get("/topology") == before

        @rule(events=st.lists(EVENTS, min_size=1, max_size=4))
        def try_out(self, events: list[dict[str, Any]]) -> None:
            before = browser.get("/topology")
            assert browser.ask("POST", "/events?dry_run=true", {"events": events}).status in (200, 422)
            assert browser.get("/topology") == before

    run_state_machine_as_test(
        Changes, settings=settings(max_examples=5, stateful_step_count=8, deadline=None, phases=[Phase.generate])
    )
    catalog = coordinator.catalog
    wrong = [
        v.reason for v in violations(catalog.plan, catalog.placement, catalog.topology) if "not placed" not in v.reason
    ]
    assert wrong == []
    assert browser.get("/health")["problems"] == []
