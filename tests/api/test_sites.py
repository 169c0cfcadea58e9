"""Sites join a coordinator that runs, are heard of and leave; whoever may not is told why, at both ends."""

from __future__ import annotations

import errno
import json
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pytest

from lab.load.sites import SiteAnswers, SitesLoad
from meander.api.coordinator import Coordinator
from meander.coordinator.change_reader import ChangeReader
from meander.coordinator.membership.detector import Detector
from meander.coordinator.membership.events import MembershipEvents
from meander.coordinator.membership.fleet import MemberFleet
from meander.coordinator.membership.members import Membership
from meander.coordinator.membership.records import Heartbeat, MemberState
from meander.coordinator.membership.refusals import SiteRefusedError
from meander.membership.client import MembershipClient, MembershipListener
from meander.membership.fence import Fence
from meander.membership.http_client import CoordinatorClient, RequestRefusedError, UnreachableError
from meander.membership.protocol import OLDEST_PROTOCOL, PROTOCOL, Code, Description, Epoch, Peer, SiteMeasures
from meander.membership.protocol import Admission as Joined
from meander.model.clock import wall_clock_ms
from meander.model.errors import InputError
from tests.api.conftest import Until
from tests.coordinator.world import Browser

NEW = {"kind": "edge", "slots": 2}


def fresh(what: str) -> str:
    return f"{what}-{secrets.token_hex(3)}"


def token_for(operator: Browser, site: str, *nodes: str) -> str:
    made = operator.ask("POST", "/site-tokens", {"site": site, "nodes": list(nodes)})
    assert made.status == 201, made.body
    found: str = made.json["token"]
    return found


def said(site: str, *nodes: Mapping[str, Any], **changed: Any) -> dict[str, Any]:
    """A registration that is good, but for what is changed."""
    return {
        "protocol": PROTOCOL,
        "site": site,
        "instance": "one",
        "version": "0.1.0",
        "now_ms": wall_clock_ms(),
        "address": "grpc://127.0.0.1:1",
        "nodes": list(nodes),
        **changed,
    }


def node(browser: Browser, name: str) -> dict[str, Any] | None:
    return next((n for n in browser.get("/topology")["nodes"] if n["name"] == name), None)


def links_of(browser: Browser, name: str) -> set[tuple[str, str, float]]:
    return {(k["a"], k["b"], k["latency_ms"]) for k in browser.get("/topology")["links"] if name in (k["a"], k["b"])}


def shape(browser: Browser) -> tuple[Any, Any]:
    """Nodes and links, whatever runs on them: queries of other tests may still be on their way out."""
    found = browser.get("/topology")
    return {n["name"]: n["alive"] for n in found["nodes"]}, found["links"]


def is_alive(browser: Browser, name: str) -> bool:
    found = node(browser, name)
    return found is not None and found["alive"]


def audit(operator: Browser, who: str) -> list[tuple[str, str]]:
    return [(e["did"], e["outcome"]) for e in operator.get("/audit?limit=1000") if e["who"] == who]


# ---------------------------------------------------------------- a site's life


@dataclass
class Heard(MembershipListener):
    """Writes down what a client is told."""

    known: dict[str, Peer] = field(default_factory=dict)
    beats: int = 0
    joins: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    value: SiteMeasures = field(default_factory=SiteMeasures)

    def joined(self, membership: Joined) -> None:
        self.joins.append(membership.session)

    def lost(self, reason: str) -> None:
        self.losses.append(reason)

    def peers(self, peers: Mapping[str, Peer]) -> None:
        self.known = dict(peers)

    def heard(self, answer: Mapping[str, Any]) -> None:
        self.beats += 1

    def measures(self) -> SiteMeasures:
        return self.value


@pytest.fixture
def client_of(coordinator: Coordinator) -> Iterator[Callable[..., tuple[MembershipClient, Heard]]]:
    made: list[MembershipClient] = []

    def make(token: str, site: str, *nodes: Mapping[str, Any], instance: str = "one") -> tuple[MembershipClient, Heard]:
        description = Description(site, nodes, f"grpc://{site}:1", instance, "0.1.0")
        heard = Heard()
        client = MembershipClient(CoordinatorClient(coordinator.address, token), description, Fence(), heard)
        made.append(client)
        client.start()
        return client, heard

    yield make
    for client in made:
        client.stop()


def test_a_site_brings_its_node_is_heard_of_and_takes_the_node_with_it_when_it_leaves(
    operator: Browser, reader: Browser, client_of: Callable[..., tuple[MembershipClient, Heard]], until: Until
) -> None:
    site, name = fresh("gateway"), fresh("bridge")
    token = token_for(operator, site, name)
    assert reader.get(f"/sites/{site}") == {"site": site, "state": "expected", "nodes": [name]}
    given = {"name": name, **NEW, "links": [{"target": "e0", "latency_ms": 3.5}]}
    client, heard = client_of(token, site, given)
    heard.value = SiteMeasures({name: {"pending": 7}}, {"slots": 1})
    assert client.wait_joined(90).nodes == (name,)
    assert is_alive(reader, name)
    assert links_of(reader, name) in ({(name, "e0", 3.5)}, {("e0", name, 3.5)})
    until(lambda: heard.known.get(name) == Peer(site, f"grpc://{site}:1"))
    until(
        lambda: reader.get(f"/sites/{site}").get("measures") == {"nodes": {name: {"pending": 7}}, "host": {"slots": 1}}
    )
    assert reader.get(f"/sites/{site}")["state"] == "here"

    client.drain()
    assert reader.get(f"/sites/{site}")["state"] == "draining"
    assert (node(reader, name) or {})["capacity"] == 0
    client.leave()
    assert not is_alive(reader, name)
    assert reader.get(f"/sites/{site}")["state"] == "left"
    assert audit(operator, site) == [("join", "done"), ("drain", "done"), ("leave", "done")]


def test_what_is_wrong_at_a_site_is_wrong_with_the_service(
    operator: Browser, reader: Browser, client_of: Callable[..., tuple[MembershipClient, Heard]], until: Until
) -> None:
    site, name = fresh("gateway"), fresh("bridge")
    client, heard = client_of(token_for(operator, site, name), site, {"name": name, **NEW})
    client.wait_joined(90)
    heard.value = SiteMeasures(host={"problems": ["slot 0 ended: boom"]})
    health = until(lambda: (h := reader.get("/health"))["status"] == "degraded" and h)
    assert f"site {site}: slot 0 ended: boom" in health["problems"]
    heard.value = SiteMeasures(host={"problems": []})
    until(lambda: not [p for p in reader.get("/health")["problems"] if p.startswith(f"site {site}")])
    client.leave()


def test_a_site_that_was_released_finds_out_with_its_next_heartbeat_and_joins_again(
    operator: Browser, reader: Browser, client_of: Callable[..., tuple[MembershipClient, Heard]], until: Until
) -> None:
    site, name = fresh("gateway"), fresh("bridge")
    client, heard = client_of(token_for(operator, site, name), site, {"name": name, **NEW})
    first = client.wait_joined(90).session
    assert operator.ask("POST", f"/sites/{site}/release").status == 200
    until(lambda: len(heard.joins) == 2)
    assert heard.joins[0] == first != heard.joins[1]
    assert is_alive(reader, name)


class FullFence(Fence):
    """Its disk has no room at first."""

    tries = 0

    def accept(self, epoch: Epoch) -> None:
        self.tries += 1
        if self.tries < 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().accept(epoch)


def test_a_site_that_cannot_write_down_who_coordinates_joins_when_its_disk_has_room(
    operator: Browser, coordinator: Coordinator
) -> None:
    site, name = fresh("gateway"), fresh("bridge")
    description = Description(site, ({"name": name, **NEW},), f"grpc://{site}:1", "one", "0.1.0")
    asking, heard = CoordinatorClient(coordinator.address, token_for(operator, site, name)), Heard()
    client = MembershipClient(asking, description, FullFence(), heard)
    client.start()
    try:
        assert client.wait_joined(90).nodes == (name,)
    finally:
        client.stop()
    assert heard.losses == ["OSError: [Errno 28] No space left on device"]


def test_a_revoked_token_ends_the_membership_at_both_ends(
    operator: Browser, reader: Browser, client_of: Callable[..., tuple[MembershipClient, Heard]], until: Until
) -> None:
    site, name = fresh("gateway"), fresh("bridge")
    client, _ = client_of(token_for(operator, site, name), site, {"name": name, **NEW})
    client.wait_joined(90)
    assert operator.ask("DELETE", f"/site-tokens/{site}").status == 204
    assert not is_alive(reader, name)
    until(lambda: client.membership is None)
    with pytest.raises(RequestRefusedError, match="this token is not known") as refused:
        client.wait_joined(90)
    assert refused.value.code is Code.TOKEN
    assert ("revoke token", "done") in audit(operator, "local")


# ---------------------------------------------------------------- nobody gets in who may not


def test_nobody_without_a_token_of_a_site_speaks_for_one(
    operator: Browser, reader: Browser, stranger: Browser, coordinator: Coordinator
) -> None:
    site, name = fresh("gateway"), fresh("bridge")
    token_for(operator, site, name)
    body = said(site, {"name": name, **NEW})
    beat = {"session": "x", "now_ms": 1}
    for browser in (operator, reader, stranger, Browser(coordinator.address, "wrong" * 5)):
        for method, path, sent in (
            ("POST", "/sites", body),
            ("POST", f"/sites/{site}/heartbeats", beat),
            ("POST", f"/sites/{site}/drain", {"session": "x"}),
            ("DELETE", f"/sites/{site}?session=x", None),
        ):
            answer = browser.ask(method, path, sent)
            assert (answer.status, answer.json["code"]) == (401, "token"), (method, path)
            assert "meander site token create" in answer.json["detail"]
    assert node(reader, name) is None
    assert any(did == "POST" and o.startswith("401: ") for did, o in audit(operator, "anonymous"))


def test_tokens_of_sites_open_nothing_else(operator: Browser, reader: Browser, coordinator: Coordinator) -> None:
    site = Browser(coordinator.address, token_for(operator, fresh("gateway"), "x"))
    for method, path in (("GET", "/topology"), ("GET", "/sites"), ("POST", "/events"), ("GET", "/audit")):
        assert site.ask(method, path, {"events": []} if method == "POST" else None).status == 401
    for method, path in (("GET", "/site-tokens"), ("POST", "/site-tokens"), ("GET", "/audit")):
        body = {"site": "a", "nodes": ["b"]} if method == "POST" else None
        assert reader.ask(method, path, body).status == 403


def test_a_site_acts_for_itself_and_its_own_nodes_only(operator: Browser, coordinator: Coordinator) -> None:
    mine, other = fresh("mine"), fresh("other")
    site = Browser(coordinator.address, token_for(operator, mine, f"{mine}-*"))
    token_for(operator, other, f"{other}-*")

    def refused(body: dict[str, Any]) -> tuple[int, str]:
        answer = site.ask("POST", "/sites", body)
        return answer.status, answer.json["detail"]

    status, detail = refused(said(other, {"name": f"{other}-1", **NEW}))
    assert (status, detail) == (403, f"this token is for site '{mine}', not for '{other}'")
    status, detail = refused(said(mine, {"name": f"{mine}-1", **NEW}, {"name": "cloud"}))
    assert status == 403
    assert f"is not for node 'cloud', only for {mine}-*" in detail
    joined = site.ask("POST", "/sites", said(mine, {"name": f"{mine}-1", **NEW}))
    assert joined.status == 201
    session = joined.json["session"]
    beat = {"session": session, "protocol": PROTOCOL, "now_ms": 1, "measures": {"nodes": {"cloud": {"pending": 1}}}}
    answer = site.ask("POST", f"/sites/{mine}/heartbeats", beat)
    assert (answer.status, answer.json["detail"]) == (403, f"site '{mine}' has no node 'cloud'; measure your own")
    assert site.ask("POST", f"/sites/{other}/heartbeats", {"session": session, "now_ms": 1}).status == 403
    assert site.ask("DELETE", f"/sites/{other}?session={session}").status == 403
    outcomes = [outcome for did, outcome in audit(operator, mine) if did == "join"]
    assert len(outcomes) == 3
    assert outcomes[0].startswith("refused: this token is for site")


@pytest.mark.parametrize(
    ("changed", "status", "code", "reason"),
    [
        (
            {"protocol": 0},
            422,
            "protocol",
            "version 0 of the protocol, the coordinator 4; they may be one apart, so update the site",
        ),
        ({"protocol": 7}, 422, "protocol", "update the coordinator"),
        ({"protocol": 7, "with": "a new field"}, 422, "protocol", "update the coordinator"),
        ({"now_ms": 0}, 422, "clock", "behind the coordinator's; at most 2 s are allowed, so set it"),
        ({"now_ms": 2**42}, 422, "clock", "ahead of the coordinator's"),
        ({"nodes": []}, 422, "input", "needs at least one node"),
        ({"nodes": [{"name": "e0"}, {"name": "e0"}]}, 422, "input", "named twice"),
        ({"nodes": [{"name": "nowhere"}]}, 422, None, "no node 'nowhere'"),
        ({"nodes": [{"name": "n", **NEW, "links": [{"target": "gone"}]}]}, 422, None, "no node 'gone'"),
        ({"seen": {"epoch": 10**6, "coordinator": "made-up"}}, 422, "input", "belongs to another coordinator"),
    ],
)
def test_a_registration_that_is_wrong_says_what_and_changes_nothing(
    operator: Browser,
    coordinator: Coordinator,
    changed: dict[str, Any],
    status: int,
    code: str | None,
    reason: str,
) -> None:
    site = fresh("gateway")
    browser = Browser(coordinator.address, token_for(operator, site, "*"))
    before = shape(operator)
    answer = browser.ask("POST", "/sites", said(site, {"name": site, **NEW}) | changed)
    assert answer.status == status
    assert answer.json.get("code") == code
    assert reason in answer.json["detail"]
    assert shape(operator) == before
    assert operator.get(f"/sites/{site}")["state"] in ("expected", "left")
    assert coordinator.membership_service.membership.leadership.stepped_down is None
    assert any(reason in outcome for did, outcome in audit(operator, site) if did == "join")


def test_who_sends_fields_that_nobody_knows_or_no_token_is_in_the_audit_log_with_the_reason(
    operator: Browser, coordinator: Coordinator
) -> None:
    site = fresh("gateway")
    token = token_for(operator, site, "*")
    answer = Browser(coordinator.address, token).ask("POST", "/sites", said(site, {"name": site, **NEW}, more=1))
    assert answer.status == 422
    assert ("POST", "422: body more: Extra inputs are not permitted") in audit(operator, site)
    assert Browser(coordinator.address, "wrong").ask("POST", "/sites", said(site)).status == 401
    assert any(outcome.startswith("401: this token is not known") for _, outcome in audit(operator, "anonymous"))


def test_a_site_of_another_version_has_to_register_again_which_is_refused(membership: Membership) -> None:
    site = fresh("gateway")
    session = join(membership, site, {"name": site, **NEW})
    with pytest.raises(SiteRefusedError, match="speaks another version now; register again") as refused:
        beat(membership, site, session, protocol=PROTOCOL - 1)
    assert refused.value.code is Code.SESSION


def test_a_site_of_the_version_before_stays_a_member_and_gets_its_orders_in_that_version(
    coordinator: Coordinator, operator: Browser
) -> None:
    site = fresh("gateway")
    token = token_for(operator, site, "*")
    older = Browser(coordinator.address, token)
    answer = older.ask("POST", "/sites", {**said(site, {"name": site, **NEW}), "protocol": OLDEST_PROTOCOL})
    assert (answer.status, answer.json["protocol"]) == (201, OLDEST_PROTOCOL)
    beat = {"session": answer.json["session"], "protocol": OLDEST_PROTOCOL, "now_ms": wall_clock_ms()}
    heard = older.ask("POST", f"/sites/{site}/heartbeats", beat)
    assert (heard.status, heard.json["speaks"]) == (200, PROTOCOL)
    assert operator.get(f"/sites/{site}")["protocol"] == OLDEST_PROTOCOL
    assert MemberFleet(coordinator.membership_service.membership).protocol(site) == OLDEST_PROTOCOL
    answer = older.ask("POST", "/sites", said(site, {"name": site}))  # the site was updated
    assert (answer.status, answer.json["protocol"]) == (201, PROTOCOL)
    assert operator.get(f"/sites/{site}")["protocol"] == PROTOCOL
    assert older.ask("POST", f"/sites/{site}/heartbeats", {**beat, "session": answer.json["session"]}).status == 410


def test_a_clock_that_goes_wrong_later_is_told_of_once(membership: Membership, operator: Browser) -> None:
    site = fresh("gateway")
    session = join(membership, site, {"name": site, **NEW})
    beat(membership, site, session, ahead_ms=60_000)
    beat(membership, site, session)
    assert not [did for did, _ in audit(operator, site) if did == "clock"]
    for _ in range(5):
        beat(membership, site, session, ahead_ms=60_000)
    assert membership.roster.site(site)["clock_ms"] < -50_000
    (outcome,) = [outcome for did, outcome in audit(operator, site) if did == "clock"]
    assert "60.0 s ahead of the coordinator's" in outcome


def test_who_was_about_to_leave_when_the_coordinator_ended_has_left_when_it_is_back(
    membership: Membership, coordinator: Coordinator, reader: Browser, until: Until
) -> None:
    first, second, name = fresh("first"), fresh("second"), fresh("bridge")
    join(membership, first, {"name": name, **NEW})
    store = membership.store
    (row,) = [r for r in store.sites() if r.name == first]
    store.save_site(replace(row, state=MemberState.LEFT.value))  # and then it ended
    epoch, events = membership.leadership.epoch, MembershipEvents(store, ChangeReader({}, {}))
    again = Membership(store, epoch, events, wall_ms=wall_clock_ms)
    again.ready(coordinator.parts.core)
    until(lambda: not is_alive(reader, name))
    assert again.roster.owner(name) is None
    join(again, second, {"name": name, **NEW})
    assert again.roster.owner(name) == second


def test_simulated_sites_speak_the_protocol(operator: Browser, coordinator: Coordinator) -> None:
    names = [fresh("simulated") for _ in range(2)]
    tokens = {name: token_for(operator, name, name) for name in names}
    load = SitesLoad(coordinator.address, tokens, ["e0"], 1.0, 4.0)
    done = subprocess.run(
        [sys.executable, "-m", "lab.load.sites"],
        input=json.dumps(asdict(load)), capture_output=True, text=True, check=True,
    )  # fmt: skip
    felt = SiteAnswers(**json.loads(done.stdout))
    assert felt.refused == []
    assert felt.join_ms


def test_a_node_is_claimed_by_one_site_until_that_leaves_or_is_released(
    operator: Browser, coordinator: Coordinator, client_of: Callable[..., tuple[MembershipClient, Heard]]
) -> None:
    first, second, name = fresh("first"), fresh("second"), fresh("bridge")
    tokens = {site: token_for(operator, site, name) for site in (first, second)}
    client_of(tokens[first], first, {"name": name, **NEW})[0].wait_joined(90)
    late, heard = client_of(tokens[second], second, {"name": name, **NEW})
    with pytest.raises(RequestRefusedError, match=f"claimed by site '{first}', which is here") as refused:
        late.wait_joined(90)
    assert refused.value.code is Code.CLAIMED
    assert heard.joins == []
    assert any("claimed by site" in outcome for _, outcome in audit(operator, second))
    twin, _ = client_of(tokens[first], first, {"name": name, **NEW}, instance="another directory")
    with pytest.raises(RequestRefusedError, match="is here already, at grpc://") as twice:
        twin.wait_joined(90)
    assert twice.value.code is Code.TWICE
    assert coordinator.membership_service.membership.roster.owner(name) == first


def test_an_address_where_no_coordinator_is_is_named() -> None:
    with pytest.raises(UnreachableError, match=r"no coordinator answers at http://127\.0\.0\.1:9"):
        CoordinatorClient("http://127.0.0.1:9", "t").ask("GET", "/health")
    with pytest.raises(InputError, match="is no address of a coordinator"):
        CoordinatorClient("127.0.0.1", "t")


# ---------------------------------------------------------------- those that are not heard of


@dataclass
class Hours:
    """A clock that is moved by hand."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def hours() -> Hours:
    return Hours()


@pytest.fixture
def membership(coordinator: Coordinator, hours: Hours) -> Membership:
    """One of its own on the coordinator's ledger and core, with a session timeout of five seconds by its own clock."""
    membership_service, world = coordinator.membership_service, coordinator.world
    events = MembershipEvents(membership_service.store, ChangeReader(world.streams, world.sinks))
    found = Membership(
        membership_service.store,
        membership_service.epoch,
        events,
        wall_ms=wall_clock_ms,
        monotonic=hours,
        session_timeout_ms=5_000,
    )
    found.ready(coordinator.parts.core)
    return found


def join(membership: Membership, site: str, *nodes: Mapping[str, Any], instance: str = "one") -> str:
    store = membership.store
    known = next((p for p in store.passes() if p.site == site), None)
    if known is None:
        store.make_token(site, [str(n["name"]) for n in nodes], 0, "test")
        known = next(p for p in store.passes() if p.site == site)
    description = Description(site, nodes, "grpc://there:1", instance, "0.1.0")
    found: str = membership.register(known, description, wall_clock_ms(), None)["session"]
    return found


def beat(
    membership: Membership, site: str, session: str, *, protocol: int = PROTOCOL, ahead_ms: int = 0
) -> dict[str, Any]:
    known = next(p for p in membership.store.passes() if p.site == site)
    return membership.heartbeat(known, site, Heartbeat(session, protocol, wall_clock_ms() + ahead_ms), None)


def test_a_silent_site_is_away_with_its_nodes_and_comes_back_with_their_links(
    membership: Membership, hours: Hours, reader: Browser
) -> None:
    left, right, calm = fresh("left"), fresh("right"), fresh("calm")
    join(membership, left, {"name": left, **NEW, "links": [{"target": "e0", "latency_ms": 2.0}]})
    both = {"name": right, **NEW, "links": [{"target": left, "latency_ms": 4.0}, {"target": "e1", "latency_ms": 5.0}]}
    gone = join(membership, right, both)
    session = join(membership, calm, {"name": calm, **NEW})
    links = links_of(reader, left), links_of(reader, right)
    assert [len(found) for found in links] == [2, 2]
    hours.now += 4.9
    assert not {left, right, calm} & set(membership.sweep())
    beat(membership, calm, session)
    hours.now += 0.2
    assert {left, right, calm} & set(membership.sweep()) == {left, right}
    assert [is_alive(reader, n) for n in (left, right, calm)] == [False, False, True]
    assert [membership.roster.site(s)["state"] for s in (left, right, calm)] == ["away", "away", "here"]
    with pytest.raises(SiteRefusedError, match="register again") as refused:
        beat(membership, right, gone)
    assert refused.value.code is Code.SESSION

    join(membership, right, {"name": right})
    assert links_of(reader, right) in ({(right, "e1", 5.0)}, {("e1", right, 5.0)})
    join(membership, left, {"name": left})
    assert (links_of(reader, left), links_of(reader, right)) == links
    assert (node(reader, left) or {})["capacity"] == NEW["slots"]


def test_a_site_that_is_away_is_a_problem_and_its_nodes_come_back_with_it_only(
    membership: Membership,
    hours: Hours,
    coordinator: Coordinator,
    operator: Browser,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    roster = membership.roster
    site, name = fresh("gateway"), fresh("bridge")
    join(membership, site, {"name": name, **NEW})
    assert site not in roster.troubles()
    hours.now += 60
    assert site in membership.sweep()
    assert roster.troubles()[site] == (f"it is away; if it is not to come back, `meander site forget {site}`",)
    monkeypatch.setattr(coordinator.membership_service.membership.roster, "absent_owner", roster.absent_owner)
    for path in ("/nodes/restore", "/nodes/forget"):
        refused = operator.ask("POST", path, {"nodes": [name]})
        assert (refused.status, f"belongs to site {site!r}, which is away" in refused.json["detail"]) == (409, True)
    membership.release(site, "operator")
    assert site not in roster.troubles()
    assert operator.ask("POST", "/nodes/forget", {"nodes": [name]}).status == 200


def test_a_site_that_drained_and_went_has_its_slots_again_when_it_is_back(
    membership: Membership, hours: Hours, reader: Browser
) -> None:
    site = fresh("gateway")
    session = join(membership, site, {"name": site, **NEW})
    known = next(p for p in membership.store.passes() if p.site == site)
    membership.drain(known, site, session, None)
    assert (node(reader, site) or {})["capacity"] == 0
    hours.now += 6
    assert site in membership.sweep()
    join(membership, site, {"name": site})
    assert (node(reader, site) or {})["capacity"] == NEW["slots"]
    session = membership.roster.sites[site].row.session
    membership.drain(known, site, session, None)
    membership.leave(known, site, session)
    assert not is_alive(reader, site)
    join(membership, site, {"name": site})
    assert (node(reader, site) or {})["capacity"] == NEW["slots"]
    membership.drain(known, site, membership.roster.sites[site].row.session, None)
    join(membership, site, {"name": site})
    assert (node(reader, site) or {})["capacity"] == NEW["slots"]


def test_a_site_that_was_lost_sight_of_can_still_leave(membership: Membership, hours: Hours, reader: Browser) -> None:
    site = fresh("gateway")
    session = join(membership, site, {"name": site, **NEW})
    known = next(p for p in membership.store.passes() if p.site == site)
    membership.drain(known, site, session, None)
    hours.now += 6
    assert site in membership.sweep()
    membership.leave(known, site, session)
    assert membership.roster.site(site)["state"] == "left"
    join(membership, site, {"name": site})
    assert (node(reader, site) or {})["capacity"] == NEW["slots"]


def test_a_site_with_another_directory_waits_until_the_first_is_not_heard_of(
    membership: Membership, hours: Hours
) -> None:
    site = fresh("gateway")
    join(membership, site, {"name": site, **NEW})
    with pytest.raises(SiteRefusedError, match="with another directory"):
        join(membership, site, {"name": site}, instance="two")
    hours.now += 5.1
    join(membership, site, {"name": site}, instance="two")


def test_the_detector_finds_a_site_that_is_silent_without_being_asked(
    coordinator: Coordinator, reader: Browser, until: Until
) -> None:
    membership_service, world, site = coordinator.membership_service, coordinator.world, fresh("gateway")
    events = MembershipEvents(membership_service.store, ChangeReader(world.streams, world.sinks))
    membership = Membership(
        membership_service.store, membership_service.epoch, events, wall_ms=wall_clock_ms, session_timeout_ms=300
    )
    membership.ready(coordinator.parts.core)
    seen: list[tuple[str, str]] = []
    membership.watchers.append(lambda name, state: seen.append((name, state.value)))
    detector = Detector(membership)
    detector.start()
    try:
        join(membership, site, {"name": site, **NEW})
        until(lambda: (site, "away") in seen)
        assert not is_alive(reader, site)
    finally:
        detector.stop()
    assert next(s for s in seen if s[0] == site) == (site, "here")


def test_many_sites_come_and_go_at_once(coordinator: Coordinator, operator: Browser, reader: Browser) -> None:
    """Those that come at the same time are decided on together; one that cannot come does not keep the others away."""
    membership_service, world = coordinator.membership_service, coordinator.world
    events = MembershipEvents(membership_service.store, ChangeReader(world.streams, world.sinks))
    names = [fresh("swarm") for _ in range(20)]
    done = [events.come(coordinator.parts.core, [{"name": n, **NEW}]) for n in names]
    bad = events.come(coordinator.parts.core, [{"name": fresh("unheard")}])
    for each in done:
        each.result(90)
    with pytest.raises(InputError, match="let the site say its kind"):
        bad.result(90)
    assert all(is_alive(reader, n) for n in names)
    for each in [events.go(coordinator.parts.core, [n]) for n in names]:
        each.result(90)
    assert not any(is_alive(reader, n) for n in names)
