"""The ledger's tables, as numbered migrations: the number of the last one that ran is the file's `user_version`.

A migration is never changed once it has been used; the next change of the tables is the next number.
"""

from __future__ import annotations

import sqlite3

from meander.model.errors import InputError

FIRST = """
CREATE TABLE nodes (
    id INTEGER PRIMARY KEY,           -- the node's number in the topology: what runs refers to it
    name TEXT NOT NULL UNIQUE,
    kind INTEGER NOT NULL,
    slots INTEGER NOT NULL,
    capacity_tps REAL,                -- NULL: unlimited
    memory_mb REAL,                   -- NULL: unlimited
    lon REAL,
    lat REAL,
    mobile INTEGER NOT NULL,
    alive INTEGER NOT NULL
);
CREATE TABLE arcs (
    tail INTEGER NOT NULL,
    tip INTEGER NOT NULL,
    latency_ms REAL NOT NULL,
    bandwidth_mbps REAL,              -- NULL: unlimited
    PRIMARY KEY (tail, tip)
) WITHOUT ROWID;
CREATE TABLE rates (
    stream TEXT NOT NULL,
    node TEXT NOT NULL,
    rate_tps REAL NOT NULL,
    PRIMARY KEY (stream, node)
) WITHOUT ROWID;
CREATE TABLE batches (
    number INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    applied INTEGER NOT NULL,         -- 0: accepted, but the process ended before it was applied
    outcome TEXT                      -- JSON, once applied
);
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    batch INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    event TEXT NOT NULL               -- JSON, as in an event file
);
CREATE INDEX events_of_batch ON events (batch);
CREATE TABLE query_log (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    batch INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    query TEXT NOT NULL,
    text TEXT                         -- NULL: the query was stopped
);
CREATE TABLE demands (
    query TEXT PRIMARY KEY,
    demands TEXT NOT NULL             -- JSON: a list of texts
) WITHOUT ROWID;
CREATE TABLE mechanisms (
    query TEXT PRIMARY KEY,
    mechanism TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE outlets (
    channel INTEGER PRIMARY KEY,      -- until the query is stopped and the last result is delivered
    query TEXT NOT NULL,
    sink TEXT NOT NULL
);
CREATE TABLE placements (
    operator INTEGER PRIMARY KEY,
    node INTEGER NOT NULL,
    pinned INTEGER NOT NULL,          -- 1: a person put it there
    why TEXT NOT NULL
);
CREATE TABLE reconfigurations (
    number INTEGER PRIMARY KEY,
    status TEXT NOT NULL,
    record TEXT NOT NULL              -- JSON
);
CREATE TABLE decisions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    query TEXT NOT NULL,
    record TEXT NOT NULL              -- JSON
);
CREATE TABLE answers (
    key TEXT PRIMARY KEY,             -- the Idempotency-Key
    fingerprint TEXT NOT NULL,        -- of the request
    at_ms INTEGER NOT NULL,
    batch INTEGER,                    -- the batch that the request became part of
    status INTEGER,                   -- NULL until it is answered
    body TEXT                         -- JSON: the answer; until then, the form it will have
) WITHOUT ROWID;
CREATE INDEX answers_by_age ON answers (at_ms);
"""

SITES = """
CREATE TABLE epoch (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    number INTEGER NOT NULL,          -- of the coordinator that may act: one more with every start
    coordinator TEXT NOT NULL,        -- tells apart two that run on copies of one directory
    secret TEXT NOT NULL,             -- signs the names of coordinators of this directory
    at_ms INTEGER NOT NULL
);
CREATE TABLE site_tokens (
    site TEXT PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,      -- SHA-256; the token itself is nowhere
    nodes TEXT NOT NULL,              -- JSON: names and patterns of the nodes it may act for
    made_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE sites (
    name TEXT PRIMARY KEY,
    state TEXT NOT NULL,              -- here, draining, away, left
    instance TEXT NOT NULL,
    session TEXT NOT NULL,
    address TEXT NOT NULL,
    version TEXT NOT NULL,
    since_ms INTEGER NOT NULL,        -- when the state began
    clock_ms INTEGER NOT NULL         -- how far its clock was off when this was written
) WITHOUT ROWID;
CREATE TABLE claims (
    node TEXT PRIMARY KEY,
    site TEXT NOT NULL,
    slots INTEGER                     -- what it had before its site drained; NULL: it does not drain
) WITHOUT ROWID;
CREATE TABLE away_links (             -- of nodes that left because their site did: they come back with them
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    latency_ms REAL NOT NULL,
    bandwidth_mbps REAL,              -- NULL: unlimited
    PRIMARY KEY (source, target)
) WITHOUT ROWID;
CREATE TABLE audit (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms INTEGER NOT NULL,
    who TEXT NOT NULL,                -- coordinator, operator, reader, a site's name, nobody
    did TEXT NOT NULL,
    about TEXT NOT NULL,
    outcome TEXT NOT NULL
);
"""

NUMBERS = """
ALTER TABLE query_log ADD COLUMN first INTEGER;  -- operators are counted from here; NULL: on from before
"""

BROKERS = """
ALTER TABLE sites ADD COLUMN broker TEXT NOT NULL DEFAULT '';  -- which one the site uses; empty: none
"""

DEPARTED = """
CREATE INDEX away_links_by_target ON away_links (target);  -- from now on of every node that was removed
CREATE TABLE forgotten_nodes (        -- removed nodes that nobody wants back
    name TEXT PRIMARY KEY
) WITHOUT ROWID;
"""

WORDS = """
ALTER TABLE outlets RENAME TO sink_bindings;
UPDATE reconfigurations SET record = json_set(record, '$.status', 'committed')
    WHERE json_extract(record, '$.status') = 'in_effect';
UPDATE reconfigurations SET record = json_set(record, '$.status', 'aborted')
    WHERE json_extract(record, '$.status') = 'taken_back';
"""

STEERING = """
CREATE TABLE adaptation_settings (    -- what was set at run time
    query TEXT NOT NULL,              -- empty: of all queries
    name TEXT NOT NULL,
    value TEXT NOT NULL,              -- JSON, as users write it
    PRIMARY KEY (query, name)
) WITHOUT ROWID;
ALTER TABLE mechanisms ADD COLUMN reason TEXT NOT NULL DEFAULT '';  -- why the query has it
"""

PARTED = """
ALTER TABLE query_log ADD COLUMN parted INTEGER NOT NULL DEFAULT 0;  -- 1: its operators are those of a cut
CREATE TABLE cuts (
    query TEXT PRIMARY KEY,
    record TEXT NOT NULL              -- JSON: the join matrix, the parts, and the numbers of their operators
) WITHOUT ROWID;
"""

COSTS = """
ALTER TABLE nodes ADD COLUMN power_w REAL NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN price_per_h REAL NOT NULL DEFAULT 0;
"""

PROTOCOLS = """
ALTER TABLE sites ADD COLUMN protocol INTEGER NOT NULL DEFAULT 3;  -- the version that site and coordinator agreed on
"""

REWRITES = """
ALTER TABLE query_log ADD COLUMN rules INTEGER NOT NULL DEFAULT 0;  -- the rewrite rules of its plan; 0: as written
"""

MIGRATIONS: tuple[str, ...] = (
    FIRST,
    SITES,
    NUMBERS,
    BROKERS,
    DEPARTED,
    WORDS,
    STEERING,
    PARTED,
    COSTS,
    PROTOCOLS,
    REWRITES,
)
"""In order; the first is number 1."""


def migrate(connection: sqlite3.Connection) -> None:
    """Brings a file up to date, each migration as a whole or not at all."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found > len(MIGRATIONS):
        raise InputError(
            f"the ledger was written by a newer version (its tables have number {found}, this one knows "
            f"{len(MIGRATIONS)}); install that version or restore a backup"
        )
    for number, script in enumerate(MIGRATIONS[found:], found + 1):
        connection.executescript(f"BEGIN;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")
