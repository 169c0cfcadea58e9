"""An active coordinator's store and ledger, a standby and sites that vote, without Spark, processes or a network."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from meander.coordinator.directory.creation import create
from meander.coordinator.directory.directory import CoordinatorDirectory
from meander.coordinator.ledger.ledger import Ledger
from meander.coordinator.membership.store import MemberRow, MembershipStore
from meander.coordinator.standby import election
from meander.coordinator.standby.following import SILENT_S, Following
from meander.coordinator.standby.standby import TAKE_OVER_S, Standby
from meander.membership import votes
from meander.membership.fence import Fence, FencedError
from meander.membership.protocol import PROTOCOL, STANDBY_TERM, Epoch
from meander.membership.votes import StandbyVotes
from meander.model.ids import ChannelId
from meander.reconfigure.agent.serving.replication import Replication
from meander.run.channels.base import ChannelAppend, ChannelSpec
from meander.run.store.commit import Commit
from meander.run.store.store import Store

RING = Path(__file__).parents[3] / "examples" / "topologies" / "ring.yaml"
OUT = ChannelId(7)
SCHEMA = pa.schema([pa.field("id", pa.int64())])
__all__ = ["SILENT_S", "TAKE_OVER_S", "Active", "Fleet", "Voter", "read"]


class Voter:
    """A site: what it remembers survives it."""

    def __init__(self, name: str, directory: Path, fleet: Fleet) -> None:
        self.name, self._directory, self._fleet = name, directory, fleet
        directory.mkdir()
        self.heard = fleet.now
        self.start()

    def start(self) -> None:
        self.fence = Fence(self._directory / "fence.json")
        self.votes = StandbyVotes(self.fence, self._directory / "standby.json", lambda: self._fleet.now - self.heard)

    def beat(self, active: Active) -> None:
        """One heartbeat, with its answer."""
        active.facts[self.name] = {STANDBY_TERM: self.votes.term}
        try:
            self.fence.accept(active.epoch)
        except FencedError:
            active.is_fenced = True
            return
        self.heard = self._fleet.now
        self.votes.heard(active.following.announced("http://active"))


class Active:
    """The writes of a coordinator, and the results that leave it."""

    def __init__(self, fleet: Fleet, home: CoordinatorDirectory) -> None:
        self.home, self._fleet = home, fleet
        self.store = Store.open(home.host / "store")
        if OUT not in self.store.exchange.channels():
            self.store.commit(Commit(add=(ChannelSpec(OUT, SCHEMA, None, None),)))
        members = MembershipStore(home.ledger)
        self.epoch: Epoch = members.begin_epoch(1)
        members.close()
        self.ledger = Ledger(home.ledger, self.epoch)
        self.facts: dict[str, Mapping[str, Any]] = {}
        self.is_fenced = False
        self.following = Following(
            home, Replication(self.store, fleet.clock), lambda: list(fleet.voters), lambda: self.facts, fleet.clock
        )

    def write(self) -> None:
        """A result, which a sink's file has too, and what the ledger says of it."""
        number = self.store.exchange.tail(OUT)
        with (self.home.results / "out.jsonl").open("a") as results:
            results.write(f"{number}\n")
        with self.ledger.transaction():
            self.ledger.batches.accept(number, [], [])
        table = pa.table({"id": [number]}, schema=SCHEMA)
        self.store.commit(Commit(appends=(ChannelAppend.one(OUT, table),)))

    @property
    def left(self) -> int:
        """How much may have left it."""
        return self.store.released(OUT, self.store.exchange.tail(OUT))

    def close(self) -> None:
        self.ledger.close()
        self.store.close()


class Fleet:
    """All of them, with one clock; `cut` are pairs that cannot reach each other."""

    def __init__(self, directory: Path, sites: int) -> None:
        self.now = 1_000.0
        self.cut: set[frozenset[str]] = set()
        self.voters: dict[str, Voter] = {}
        home = create(directory / "active", RING)
        home.results.mkdir(exist_ok=True)
        Ledger(home.ledger).close()
        members = MembershipStore(home.ledger)
        for number in range(sites):
            name = f"site-{number}"
            members.make_token(name, ["*"], 0, "test")
            with members.transaction():
                members.save_site(MemberRow(name, "here", "one", "s", "grpc://there:1", "1", 0, 0, "", PROTOCOL))
            self.voters[name] = Voter(name, directory / name, self)
        members.close()
        self.active = Active(self, home)
        self.standby = self.joining(directory / "standby")

    def clock(self) -> float:
        return self.now

    def joining(self, directory: Path) -> Standby:
        directory.mkdir()
        standby = Standby(
            CoordinatorDirectory(directory), "http://active", "t" * 20, "http://standby", None, self.clock
        )
        standby._ask = self._answer  # type: ignore[method-assign, assignment]
        return standby

    def reaches(self, one: str, other: str) -> bool:
        return frozenset((one, other)) not in self.cut

    def _answer(self, asked: Mapping[str, Any]) -> Any:
        if not self.reaches("active", "standby"):
            raise ConnectionRefusedError("cut off")
        return io.BytesIO(b"".join(self.active.following.serve(asked)))

    def beat(self) -> None:
        for voter in self.voters.values():
            if self.reaches("active", voter.name):
                voter.beat(self.active)

    def vote(self, candidacy: election.Candidacy, site: str, would: bool) -> str | None:
        if not self.reaches("standby", site):
            return "cut off"
        asked = {**candidacy.epoch.as_json(), "term": candidacy._term, "would": would}
        answer = self.voters[site].votes.vote(asked)
        return None if answer["granted"] else str(answer["reason"])

    def is_elected(self) -> bool:
        return self.standby._is_elected()


@contextmanager
def no_waiting(monkeypatch: Any, fleet: Fleet) -> Iterator[None]:
    """Votes are asked for directly, and nobody waits for changes that do not come."""
    from meander.coordinator.standby import following

    with monkeypatch.context() as patched:
        patched.setattr(following, "WAIT_S", 0.0)
        patched.setattr(following, "CONFIRM_S", 0.0)
        patched.setattr(
            election.Candidacy,
            "_asked",
            lambda self, *, would: _refusal({s: fleet.vote(self, s, would) for s in fleet.voters}),
        )
        yield


def _refusal(answers: Mapping[str, str | None]) -> str | None:
    refused = {site: reason for site, reason in answers.items() if reason is not None}
    return None if 2 * (len(answers) - len(refused)) > len(answers) else str(refused)


def read(home: CoordinatorDirectory) -> tuple[list[int], int, list[str]]:
    """The contents of a copy: results in the store, batches in the ledger, lines of the file."""
    store = Store.open(home.host / "store")
    ids = store.exchange.read(OUT, 0, store.exchange.tail(OUT)).table
    store.close()
    ledger = Ledger(home.ledger)
    batches = ledger.batches.next - 1
    ledger.close()
    found = [] if ids is None else ids.column("id").to_pylist()
    lines = home.results / "out.jsonl"
    return found, batches, lines.read_text().split() if lines.exists() else []


SILENCE_S = max(SILENT_S, TAKE_OVER_S, votes.SILENT_S) + 0.1
