"""Shares of reconfigurations on one host: prepared, marked, fetched, and then in effect or taken back.

The same as on a host that has everything for itself, in steps that the coordinator gives: nothing is given up before
the effect, which is one commit here; and everything that has to survive a crash in between is in the store.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from meander.deploy import freezing
from meander.deploy.fragments import Channel
from meander.deploy.records import channel_from_json
from meander.model.errors import InputError
from meander.model.ids import ChannelId, FragmentId
from meander.reconfigure.effect import forgotten
from meander.reconfigure.freezer import freeze, pauses_after
from meander.reconfigure.in_flight import drained_although_cut, gone_ports
from meander.reconfigure.part import Part
from meander.reconfigure.part_effect import share_effect, starts
from meander.reconfigure.part_in_flight import PartInFlight, keys_of
from meander.reconfigure.paths import Paths
from meander.reconfigure.serialised_fragment import install_made
from meander.reconfigure.state.pull import StatePull
from meander.reconfigure.state.transfer import Export
from meander.run.channels.base import NO_WATERMARK, ChannelAppend, ChannelSpec
from meander.run.channels.flight.client import FlightClient
from meander.run.channels.flight.puller import Pulling
from meander.run.channels.flight.server import Chunks
from meander.run.channels.kafka.exchange import KafkaExchange
from meander.run.fragments.bindings import first_slot
from meander.run.fragments.routing import Wire
from meander.run.host import Host
from meander.run.installation import OUTSIDE, Installation
from meander.run.store.commit import Commit, RemoveChannel, Rewire
from meander.run.store.records.deployment import ChannelRecord
from meander.run.store.records.progress import FloorRecord
from meander.run.store.records.reconfigurations import DrainedRecord, PartRecord
from meander.run.store.records.record import Change, forget, forget_all
from meander.run.store.records.transport import CopyRecord, ReaderRecord

_log = logging.getLogger(__name__)
MOST_OVER = 1_000
Wires = dict[FragmentId, tuple[tuple[Wire, ...], ...]]


class Agent:
    """What one host does of changes that touch several. Orders may come from any thread."""

    def __init__(
        self, host: Host, paths: Paths, asker: Callable[[str], FlightClient], kafka: KafkaExchange | None = None
    ) -> None:
        """`kafka` is for what goes over a broker, where there is one."""
        self.host, self.paths, self.kafka = host, paths, kafka
        self.pulling = Pulling(host.store, asker, broker=kafka)
        self.pulling.wanted_whole = self._taken_over
        self.courses: dict[int, PartInFlight] = {}
        self._asker = asker
        self._exports: dict[tuple[int, int], Export] = {}
        self.changing = threading.RLock()
        """Held while something changes what runs here."""
        self._over: deque[int] = deque(maxlen=MOST_OVER)
        """Changes that were taken back or have happened here: an order to prepare one was long on its way."""
        self._turn = (0, 0)
        """The newest order about ways that was carried out: epoch and turn."""
        self._preparer = ThreadPoolExecutor(1, "preparer")
        if kafka is not None:
            kafka.start(self.pulling, self.may_pull)
            host.troubles.append(kafka.problems)

    # ---------------------------------------------------------------- steps

    def prepare(self, share: Part, installation: Installation | None = None) -> None:
        """Binds what will run here, and lets what runs stop at the marker; `installation` if that is bound already.

        A port that is cut counts as having met the marker, so those that have to be emptied are open from here on.
        """
        with self.changing:
            if share.number in self.courses:
                return
            if share.number in self._over:
                raise InputError(f"change {share.number} is over here")
            course = self._course(share, installation)
            with self.host.between_steps(course.old):
                self.host.store.commit(Commit(rewire=self._drained(share), records=(course.record,)))
                self.host.routing.wait_for(share.marker)
            self.courses[share.number] = course
            course.preparing = self._preparer.submit(self.host.prepare, course.installation.fragments)

    def _course(self, share: Part, installation: Installation | None) -> PartInFlight:
        routing = self.host.routing
        missing = [f for f in share.before if f not in routing.fragments]
        if missing:
            raise InputError(
                f"fragment {missing[0]} should run at {share.site} and does not; was its directory lost? "
                "start the site with the directory that it had"
            )
        old = {f: routing.fragments[f] for f in share.before}
        if installation is None:
            slots = {f: old[f].slot if f in old else first_slot(f, routing.slots) for f in share.after}
            installation = install_made(share.made, share.after.values(), share.local.channels_after, slots)
        specs = {s.channel: s for s in installation.channels}
        for channel in share.local.channels_after.values():
            specs.setdefault(
                channel.id, ChannelSpec(channel.id, share.schemas[channel.id], channel.sender, channel.receiver)
            )
        complete = replace(installation, channels=tuple(specs.values()))
        return PartInFlight(share.reconfiguration(), complete, old, time.perf_counter(), share=share)

    def mark(self, number: int) -> None:
        """Opens channels that begin here and puts the marker into those that lead into the change."""
        with self.changing:
            course = self._known(number)
            if course.is_marked:
                return
            share, store = course.of, self.host.store
            marked = replace(course.record, is_marked=True)
            if not share.change.fragments_before:  # nothing has to stop: what is new begins with the effect
                store.commit(Commit(records=(marked,)))
                course.is_marked = True
                return
            wires = self._with(share)
            entering = share.entering
            ingest = [p for f in course.old.values() for p in f.ports if p >= OUTSIDE]
            appends = [ChannelAppend.one(c, marker=share.marker) for c in (*(c.id for c in entering), *ingest)]
            known = set(store.exchange.channels())
            opened = {c.id for c in share.opened.values()} - known
            add = tuple(s for s in course.installation.channels if s.channel in opened)
            with self.host.between_steps({c.sender for c in entering} | set(wires)) as slots:
                store.commit(Commit(add=add, appends=tuple(appends), records=(marked,)))
                course.is_marked = True
                if wires:
                    self.host.routing.rewire(wires)
            self.host.wake(slots)

    def _drained(self, share: Part, *, is_cut: bool = False) -> tuple[Rewire, ...]:
        """Channels that have to be emptied although there is no way: nobody reads them as they are afterwards."""
        known = set(self.host.store.exchange.channels())
        found = [c for c in drained_although_cut(share.change) if c.id in known and share.touches(c)]
        return tuple(Rewire(c.id, c.receiver, is_cut=is_cut) for c in found)

    def look(self, number: int) -> dict[str, Any]:
        """How far a share is."""
        with self.changing:
            course = self.courses.get(number)
            if course is None:
                return {"phase": "unknown"}
            routing, share = self.host.routing, course.of
            preparing, problem = course.preparing, None
            if course.is_marked:
                frozen, problem = freeze(self.host, share.change, share.marker, course.old)
                course.frozen |= frozen
            drained = all(f in routing.drained for f in course.old)
            found: dict[str, Any] = {
                "phase": "fetching" if course.fetched is not None else "marked" if course.is_marked else "prepared",
                "prepared": preparing is None or preparing.done(),
                "drained": drained,
                "arrived": course.fetched is not None and self._has_arrived(course),
                "bytes": sum(move.bytes for move in course.pulls),
                "problem": problem or next((m.error for m in course.pulls if m.state.value == "failed"), None),
            }
            if drained:
                found["readers"] = {str(c.id): self._reading(c.id) for c in share.readings} | self._frozen(course)
                found["frozen"] = {str(f): 1 for f in sorted(course.frozen)}
                found["logs"] = {
                    str(c.id): [*self._reading(c.id), self.host.store.exchange.tail(c.id)] for c in share.given_away
                }
                floors = self.host.store.records(FloorRecord)
                found["floors"] = {str(f): floors[f].watermark_ms for f in course.old if f in floors}
            return found

    def _frozen(self, course: PartInFlight) -> dict[str, list[int]]:
        """Where others begin to read what frozen fragments have not consumed, or behind that if it is for nobody."""
        change, frozen = course.of.change, course.frozen
        found = {str(f.channel): self._reading(f.of) for f in freezing.forks(change, frozen)}
        for channel in freezing.skipped(change, frozen):
            exchange = self.host.store.exchange
            behind = exchange.behind_marker(channel.id, course.number)
            marks = [mark for _, mark in exchange.read(channel.id, exchange.start(channel.id), behind).watermarks]
            found[str(channel.id)] = [behind, max(self._reading(channel.id)[1], *marks, NO_WATERMARK)]
        return found

    def _reading(self, channel: ChannelId) -> list[int]:
        """How far a channel is processed, and the watermark reached with that."""
        exchange = self.host.store.exchange
        return [exchange.start(channel), int(exchange.watermarks([channel])[0])]

    def fetch(self, number: int, told: Mapping[str, Any]) -> None:
        """Pulls state that comes here, and logs that will begin here; `told` is what the other sites said."""
        with self.changing:
            course = self._known(number)
            if course.fetched is None:
                self._begin_logs(course, told)
            self._pull_state(course)
        self.pulling.refresh()

    def _taken_over(self) -> set[ChannelId]:
        """Logs that come here before whoever appends to them does."""
        return {c.id for each in list(self.courses.values()) if each.fetched is not None for c in each.of.taken_over}

    def _begin_logs(self, course: PartInFlight, told: Mapping[str, Any]) -> None:
        share, store = course.of, self.host.store
        known = set(store.exchange.channels())
        fresh = [c for c in share.taken_over if c.id not in known]
        course.fetched, course.added = dict(told), [c.id for c in fresh]
        add = tuple(ChannelSpec(c.id, share.schemas[c.id], c.sender, c.receiver) for c in fresh)
        passed = starts({c.id: told["logs"][str(c.id)][:2] for c in fresh})
        copies = [CopyRecord(c.id, tuple(share.ways["logs"][str(c.id)])) for c in fresh]
        store.commit(Commit(add=add, passed=passed, records=(*copies, course.record)))

    def _pull_state(self, course: PartInFlight) -> None:
        share = course.of
        places = {(operator, target): place for place, operator, target in share.arriving()}
        for handover in course.travelling:
            if handover not in course.moves:
                place = places[handover.operator, handover.target]
                keys = list(course.keys(handover).values())
                way = share.ways["state"][str(place)]
                move = StatePull(
                    self.host.store, course.staging(handover), course.number, place, keys, way, self._asker
                )
                course.moves[handover] = move
                move.start()

    def _has_arrived(self, course: PartInFlight) -> bool:
        told = course.fetched or {}
        stops = {c.id: told["logs"][str(c.id)][2] for c in course.of.taken_over}
        return all(m.done for m in course.moves.values()) and all(
            self.host.store.exchange.tail(c) >= stop for c, stop in stops.items()
        )

    # ---------------------------------------------------------------- ending

    def effect(self, number: int, told: Mapping[str, Any], records: tuple[Change, ...] = ()) -> None:
        """The change happens here: one commit, then the routing table. `records` go into the same commit."""
        with self.changing:
            course = self.courses.get(number)
            if course is None:
                if records:
                    self.host.store.commit(Commit(records=records))
                return
            host, routing, share = self.host, self.host.routing, course.of
            closed = list(course.reconfiguration.closed.values())
            host.stop_feeding(set(gone_ports(course)))
            wires = self._with(share)
            with host.between_steps({c.sender for c in closed} | set(wires)):
                host.store.commit(share_effect(course, host.store, self.paths, told, records))
                gone = set(course.old)
                added = [routing.as_bound(f) for f in course.installation.fragments]
                pauses = pauses_after(host, share.local, course.frozen)
                routing.exchange(gone - {f.fragment for f in added}, added, pauses)
                wires = self._without((c for c in closed if c.sender not in gone), self._with(share))
                if wires:
                    routing.rewire(wires)
                host.store.state.begin_epoch()
            self._forget(course)
            host.take_in(course.installation.ingest)
        self.pulling.refresh()
        host.wake()

    def abort(self, number: int) -> None:
        """Takes a share back: what ran before goes on from where it stopped."""
        with self.changing:
            course = self.courses.get(number)
            if course is None:
                self._over.append(number)
                return
            for move in course.moves.values():
                move.cancel()
            share, store, routing = course.of, self.host.store, self.host.routing
            known = set(store.exchange.channels())
            opened = [c for c in share.opened.values() if c.id in known] if share.change.fragments_before else []
            gone = {c.id for c in opened} | {ChannelId(c) for c in course.added if c in known}
            records = (
                forget(PartRecord, number),
                *forgotten(course),
                *forget_all(CopyRecord, map(ChannelId, course.added)),
            )
            retire = tuple(course.staging(h) for h in course.moves)
            with self.host.between_steps({c.sender for c in opened} | set(course.old)):
                remove = tuple(RemoveChannel(c, discard=True) for c in sorted(gone))
                cut = self._drained(share, is_cut=True)
                store.commit(Commit(rewire=cut, remove=remove, retire=retire, records=records))
                wires = self._without(opened, {})
                if wires:
                    routing.rewire(wires)
                routing.go_on(number)
            self._forget(course)
            _log.warning("share %d was taken back", number)
        self.pulling.refresh()
        self.host.wake()

    def abort_forgotten(self, number: int, open_: Collection[int]) -> None:
        """Takes back what was under way before this change and the coordinator does not know of any more."""
        for each in [n for n in list(self.courses) if n < number and n not in open_]:
            self.abort(each)

    def _forget(self, course: PartInFlight) -> None:
        del self.courses[course.number]
        self._over.append(course.number)
        for key in [key for key in self._exports if key[0] == course.number]:
            del self._exports[key]

    # ---------------------------------------------------------------- wires

    def _with(self, share: Part) -> Wires:
        """The outputs of fragments that stay, with channels that are new."""
        found: Wires = {}
        for channel in share.opened.values():
            sender = self.host.routing.fragments.get(channel.sender)
            if channel.sender in share.change.fragments or sender is None:
                continue
            outputs = list(found.get(channel.sender, sender.outputs))
            at = sender.bound.outputs.index(channel.upstream)
            if all(wire.channel != channel.id for wire in outputs[at]):
                outputs[at] = (*outputs[at], Wire(channel.id))
                found[channel.sender] = tuple(outputs)
        return found

    def _without(self, channels: Iterable[Channel], wires: Wires) -> Wires:
        found = dict(wires)
        for channel in channels:
            sender = self.host.routing.fragments.get(channel.sender)
            if sender is not None:
                outputs = found.get(channel.sender, sender.outputs)
                found[channel.sender] = tuple(tuple(w for w in out if w.channel != channel.id) for out in outputs)
        return found

    def reroute(self, channels: Mapping[str, Mapping[str, Any]], turn: tuple[int, int] | None = None) -> None:
        """Lets channels take another way, or none until it is back.

        `turn` grows with every order. One that waited here until its sender had given it up, and sent a newer one
        with all that it says, is not carried out any more.
        """
        with self.changing:
            if turn is not None:
                if turn < self._turn:
                    return
                self._turn = turn
            store = self.host.store
            known = set(store.exchange.channels())
            rewire: list[Rewire] = []
            records: list[Change] = []
            for key, wanted in channels.items():
                channel = ChannelId(int(key))
                if channel not in known:
                    continue
                spec = store.exchange.spec(channel)
                rewire.append(Rewire(channel, spec.receiver, None, bool(wanted["is_cut"])))
                copy = store.record(CopyRecord, channel)
                if copy is not None and copy.route:
                    records.append(CopyRecord(channel, tuple(wanted["way"])))
                elif (log := store.record(ReaderRecord, channel)) is not None:
                    records.append(replace(log, relays=tuple(wanted["way"][:-1])))
                if "record" in wanted:
                    records.append(ChannelRecord(channel_from_json(wanted["record"])))
            if rewire:
                store.commit(Commit(rewire=tuple(rewire), records=tuple(records)))
        self.pulling.refresh()
        self.host.wake()

    # ---------------------------------------------------------------- what others ask for

    def may_pull(self, reader: str, via: str, channel: ChannelId) -> bool:
        """Whether a site reads a channel from here, or is about to take its log over, and may ask through `via`."""
        found = self.host.store.record(ReaderRecord, channel)
        if found is not None and reader == found.reader and via in (found.reader, *found.relays):
            return True
        for course in list(self.courses.values()):
            share = course.of
            takers = {c.id: share.where[c.sender] for c in share.change.channels_after.values()}
            if any(c.id == channel for c in share.given_away):
                way = share.ways.get("logs", {}).get(str(channel), [])
                return reader == takers[channel] and via in (reader, *way)
        return False

    def is_given_away(self, channel: ChannelId) -> bool:
        """Whether a log is about to be taken over: it has to stay as it was told."""
        return any(c.id == channel for course in list(self.courses.values()) for c in course.of.given_away)

    def state(self, reader: str, via: str, number: int, place: int) -> tuple[Chunks, list[int], int]:
        """State that a site fetches from here, perhaps through another one."""
        with self.changing:
            course = self._known(number)
            share = course.of
            operator, source, target = share.handovers[place]
            allowed = [share.where[target], *share.ways["state"].get(str(place), ())]
            if share.where[target] != reader or via not in allowed or not share.is_here(source):
                raise InputError(f"state {place} of change {number} is not for {reader!r}")
            if source not in self.host.routing.drained:
                raise InputError(f"fragment {source} has not stopped yet")
            keys = keys_of(operator, course.old[source].bound)
            export = self._exports.get((number, place))
            if export is None:
                export = self._exports[number, place] = Export(self.host.store, source, operators=keys)
            return export, keys, export.digest

    def _known(self, number: int) -> PartInFlight:
        if number not in self.courses:
            raise InputError(f"change {number} is not under way here; it was never prepared, or has ended")
        return self.courses[number]

    # ---------------------------------------------------------------- coming back

    def recover(self) -> None:
        """Takes up the shares that were under way; what runs has been installed before."""
        store, routing = self.host.store, self.host.routing
        for number, record in store.records(PartRecord).items():
            share = Part.from_json(record.part)
            course = self._course(share, None)
            course.is_marked, course.fetched, course.added = record.is_marked, record.fetched, list(record.added)
            self.courses[number] = course
            routing.wait_for(share.marker)
            done = {f: each for f in course.old if (each := store.record(DrainedRecord, (number, f)))}
            course.frozen = {f for f, drained in done.items() if drained.is_frozen}
            routing.drain(dict.fromkeys(done, number))
            if course.is_marked and share.change.fragments_before and (wires := self._with(share)):
                routing.rewire(wires)
            course.preparing = self._preparer.submit(self.host.prepare, course.installation.fragments)
            if course.fetched is not None:
                self._pull_state(course)

    def forget_undecided(self) -> None:
        """Takes back what was under way at the coordinator's own host: whoever decides has started again."""
        store = self.host.store
        for number, record in store.records(PartRecord).items():
            share = Part.from_json(record.part)
            known = set(store.exchange.channels())
            opened = [c.id for c in share.opened.values()] if share.change.fragments_before else []
            gone = {c for c in (*opened, *record.added) if c in known}
            drained = forget_all(DrainedRecord, ((number, f) for f in share.before))
            records = (forget(PartRecord, number), *forget_all(CopyRecord, record.added), *drained)
            course = PartInFlight(share.reconfiguration(), Installation((), ()), {}, 0.0, share=share)
            retire = tuple(course.staging(h) for h in course.travelling)
            remove = tuple(RemoveChannel(c, discard=True) for c in sorted(gone))
            cut = self._drained(share, is_cut=True)
            store.commit(Commit(rewire=cut, remove=remove, retire=retire, records=records))

    def stop(self) -> None:
        self.pulling.stop()
        if self.kafka is not None:
            self.kafka.stop()
        for course in self.courses.values():
            for move in course.pulls:
                move.cancel()
        self._preparer.shutdown(wait=False, cancel_futures=True)
