"""The checks that a site must pass before it is served. Each raises with the reason and the remedy."""

from __future__ import annotations

from meander.coordinator.membership.records import MemberSite, MemberState
from meander.coordinator.membership.refusals import SiteRefusedError
from meander.coordinator.membership.store import Pass
from meander.coordinator.request_values import check_name
from meander.membership.protocol import CLOCK_MS, PROTOCOL, Code, Description, is_spoken, not_spoken


def check_protocol(spoken: int) -> None:
    if not is_spoken(spoken):
        raise SiteRefusedError(Code.PROTOCOL, not_spoken(spoken, PROTOCOL))


def check_own(given: Pass, site: str) -> None:
    if given.site != site:
        raise SiteRefusedError(Code.NOT_YOURS, f"this token is for site {given.site!r}, not for {site!r}")


def check_nodes(given: Pass, said: Description) -> None:
    if not said.nodes:
        raise SiteRefusedError(Code.INPUT, "a site needs at least one node; name it with --nodes")
    if len(set(said.names)) < len(said.names):
        raise SiteRefusedError(Code.INPUT, "a node is named twice; name each once")
    for name in said.names:
        check_name(name, "a node's name")
        if not given.covers(name):
            raise SiteRefusedError(
                Code.NOT_YOURS,
                f"the token of site {given.site!r} is not for node {name!r}, only for {', '.join(given.nodes)}; "
                "make one that is with `meander site token create`",
            )


def check_clock(site: str, behind_ms: int) -> None:
    """`behind_ms` is the coordinator's time minus the site's."""
    if abs(behind_ms) > CLOCK_MS:
        way = "behind" if behind_ms > 0 else "ahead of"
        raise SiteRefusedError(
            Code.CLOCK,
            f"the clock of site {site!r} is {abs(behind_ms) / 1000:.1f} s {way} the coordinator's; at most "
            f"{CLOCK_MS / 1000:g} s are allowed, so set it (NTP)",
        )


def check_alone(said: Description, known: MemberSite | None, silent_ms: float, session_timeout_ms: int) -> None:
    """A site is one directory: another one has to wait until the first is gone."""
    if known is None or not known.state.is_present or known.row.instance == said.instance:
        return
    if silent_ms <= session_timeout_ms:
        raise SiteRefusedError(
            Code.TWICE,
            f"site {said.site!r} is here already, at {known.row.address}, with another directory; stop that one first, "
            "or use a token of its own",
        )


def check_unclaimed(site: str, node: str, owner: str | None, state: MemberState) -> None:
    if owner is not None and owner != site:
        raise SiteRefusedError(
            Code.CLAIMED,
            f"node {node!r} is claimed by site {owner!r}, which is {state.value}; let that one leave, or take "
            f"its nodes from it with `meander site release {owner}`",
        )
