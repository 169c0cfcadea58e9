"""Links to the page: good once and not for long, and never more of them than there is room for."""

from __future__ import annotations

from meander.coordinator.security.page_sessions import LINK_S, MOST, SESSION_S, PageSessions
from meander.coordinator.security.tokens import Identity, Role

ANNA = Identity("anna", Role.OPERATOR)


def test_a_code_is_good_once_and_for_an_hour() -> None:
    now = [0.0]
    sessions = PageSessions(lambda: now[0])
    code = sessions.link(ANNA)
    opened = sessions.exchange(code)
    assert opened is not None
    assert sessions.exchange(code) is None
    assert sessions.identity_of(opened[0]) == ANNA
    assert sessions.identity_of(code) is None
    late = sessions.link(ANNA)
    now[0] += LINK_S + 1
    assert sessions.exchange(late) is None
    now[0] += SESSION_S
    assert sessions.identity_of(opened[0]) is None


def test_a_client_that_asks_for_link_after_link_takes_no_more_room() -> None:
    sessions = PageSessions()
    codes = [sessions.link(ANNA) for _ in range(MOST + 10)]
    assert len(sessions._links) == MOST
    assert sessions.exchange(codes[0]) is None
    assert sessions.exchange(codes[-1]) is not None
