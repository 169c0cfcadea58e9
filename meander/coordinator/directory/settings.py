"""The settings file of a coordinator: the text that a new one begins with, and the check of one that was edited."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from meander.adapt.mobility.settings import PredictionSettings
from meander.adapt.setting_layers import SETTINGS as ADAPTATION
from meander.adapt.setting_layers import AdaptationPolicy
from meander.coordinator.directory.directory import CoordinatorDirectory, written_settings
from meander.coordinator.security.provider import ProviderSettings
from meander.model.errors import InputError
from meander.model.expressions.allowed_functions import allowed
from meander.place.amenders.count import check_amenders
from meander.place.nova.queries.settings import NovaQuerySettings

SETTINGS = """\
# Settings of this coordinator. Flags of `meander up` win over them. What is left out has the value shown.

# host = "127.0.0.1"      # the address to listen on; beyond this machine, only with a certificate
# port = 8420
# url = "..."             # where sites find it, if that is not where it listens
# mechanism = "by_demands"  # what places queries at first: by_demands, nova, or one of `meander place --help`
# protocol = "isqd"       # how changes are deployed
# state = "migration_query" # how state moves: migration_query, stop_and_copy, store_and_forward, replay
# amenders = 1            # threads that place at the same time; left out: one per core, where the mechanism can use it
# adapt = true            # switch a query's mechanism when its demands are not met
# slots = 1               # streaming queries that share the work
# rebinding = "steady"    # how fragments change slots when there are several: static, single_queue, greedy, steady, off
# durability = "process"  # what survives a power failure: all but the last second (process), or all (disk)
# channel_budget = "500MB"  # what may wait in one channel, such as one to a site that is away
# overflow = "block"      # beyond it: block (the streams that feed it wait), spill (while there is room), drop_oldest
# emulate_latency = false # delay tuples by the latency of their path
# functions = []         # what APPLY may import: "fleet.rules:enrich", "fleet.rules", "fleet.*"; sites have --functions
# validate = false        # compare what runs with the catalog after every change; costs little, finds faults of Meander

# For sites on other machines:
# certificate = "..."     # files for TLS, as `meander certificates` makes them
# key = "..."
# ca = "..."              # the authority that signed the certificates of the sites
# mutual_tls = false      # whether clients and sites have to show a certificate of that authority
# insecure = false        # whether others may come without TLS, such as behind a proxy that has it
# rpc_listen = "127.0.0.1:0"  # where sites pull channels from, and the address under which they reach it
# rpc_address = "..."
# broker = "hub:9092"     # a Kafka broker, for channels to sites that use the same one
# broker_settings = "..." # a file with more settings of Kafka's clients, as name=value
# session_timeout = "5s"  # a site that is not heard of for so long is away

# Users who log in at an identity provider (OpenID Connect): its tokens are taken beside those of `meander token`.
# [oidc]
# issuer = "https://login.example.org"
# audience = "meander"    # what tokens for this coordinator have in `aud`
# claim = "groups"        # what says which role a user has, and who has which:
# roles = {fleet-operators = "operator", everybody = "reader"}
# name = "sub"            # what names the user in the audit log
# keys = "..."            # a file or an address with its public keys, if the issuer does not say where they are

# How mechanisms are switched, for all queries; `meander adapt show` says what applies, `meander adapt set` changes it
# while queries run, and docs/concepts/adaptation.md says what each means. [adaptation.queries.NAME] is for one query.
# [adaptation]
"""
SETTINGS += "".join(f"# {s.name} = {json.dumps(s.default)}  # {s.about}\n" for s in ADAPTATION)
SETTINGS += """
# Joins that Nova places; docs/concepts/joins.md says what they mean.
# [nova]
# sigma = 0.4             # smaller splits finer; "auto" takes it from bandwidth_tps
# overload = "expand"     # where nothing fits: expand splits finer still, refuse does not
# least_free_tps = 0      # a node with less free takes nothing more
# bandwidth_tps = 1000    # the most tuples a second that one part of a join may take in; left out: no limit
# fan_in = 8              # how many inputs a node merges, at most, of an aggregate that is placed as a tree
# ms_per_w = 0            # the latency that a watt of a node (power_w) is worth, and one of its price (price_per_h):
# ms_per_price = 0        # nodes that draw or cost more are further away

# Where mobile nodes go next: state is sent there before they move; docs/concepts/prediction.md says how.
# [prediction]
# mode = "off"            # markov: learned from their moves; timetable: from a file
# timetable = "..."       # lines of node,time,attachment; a time is 2026-05-01T08:00:00Z, or 08:00:00 for every day
# min_probability = 0.6   # less likely moves are not prepared for
# max_bytes = "64MB"      # state that waits at one node for moves that may never be
# lead = "20s"            # how long before a move its preparation begins
# keep = "60s"            # how long it is kept beyond the moment at which the move was expected
# nodes = "*"             # mobile nodes whose moves are prepared for, such as "train-*, bus-7"
"""


def read_settings(home: CoordinatorDirectory) -> dict[str, Any]:
    """Reads and checks `meander.toml`."""
    found = written_settings(home)
    try:
        check_amenders(found.get("amenders"))
        if "functions" in found:
            found["functions"] = allowed(map(str, found["functions"]))
        check_adaptation(found.get("adaptation", {}))
        if "oidc" in found:
            ProviderSettings.of(found["oidc"])
        if "nova" in found:
            found["nova"] = NovaQuerySettings.of(found["nova"])
        if "prediction" in found:
            found["prediction"] = PredictionSettings.of(found["prediction"], home.directory)
    except InputError as error:
        raise error.at(str(home.settings)) from None
    return found


def check_adaptation(section: Mapping[str, Any]) -> None:
    """Raises for a setting of the adaptation loop that is not known, or a value that is not allowed."""
    of_queries = section.get("queries", {})
    if not isinstance(of_queries, dict) or not all(isinstance(each, dict) for each in of_queries.values()):
        raise InputError("settings of one query have a section of their own, such as [adaptation.queries.slow]")
    AdaptationPolicy(file={k: v for k, v in section.items() if k != "queries"}, of_queries=of_queries)
