"""The settings file of a coordinator: the text that a new one begins with, and the check of one that was edited."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from meander.adapt.steering import SETTINGS as ADAPTATION
from meander.adapt.steering import AdaptationPolicy
from meander.coordinator.directory.directory import CoordinatorDirectory, written_settings
from meander.model.errors import InputError
from meander.place.amenders.count import check_amenders

SETTINGS = """\
# Settings of this coordinator. Flags of `meander up` win over them. What is left out has the value shown.

# host = "127.0.0.1"      # the address to listen on; beyond this machine, only with a certificate or a proxy with TLS
# port = 8420
# mechanism = "by_demands"  # what places queries at first: by_demands, or one of `meander place --help`
# protocol = "isqd"       # how changes are deployed
# amenders = 1            # threads that place at the same time; left out: one per core, where the mechanism can use it
# adapt = true            # switch a query's mechanism when its demands are not met
# slots = 1               # streaming queries that share the work
# rebinding = "steady"    # how fragments change slots when there are several: static, single_queue, greedy, steady, off
# emulate_latency = false # delay tuples by the latency of their path
# validate = false        # compare what runs with the catalog after every change; costs little, finds faults of Meander

# For sites on other machines:
# certificate = "..."     # files for TLS, as `meander certificates` makes them
# key = "..."
# ca = "..."              # the authority that signed the certificates of the sites
# rpc_listen = "127.0.0.1:0"  # where sites pull channels from, and the address under which they reach it
# rpc_address = "..."
# broker = "hub:9092"     # a Kafka broker, for channels to sites that use the same one
# broker_settings = "..." # a file with more settings of Kafka's clients, as name=value
# session_timeout = "5s"  # a site that is not heard of for so long is away

# How mechanisms are switched, for all queries; `meander adapt show` says what applies, `meander adapt set` changes it
# while queries run, and docs/concepts/adaptation.md says what each means. [adaptation.queries.NAME] is for one query.
# [adaptation]
"""
SETTINGS += "".join(f"# {s.name} = {json.dumps(s.default)}  # {s.about}\n" for s in ADAPTATION)


def read_settings(home: CoordinatorDirectory) -> dict[str, Any]:
    """Reads and checks `meander.toml`."""
    found = written_settings(home)
    try:
        check_amenders(found.get("amenders"))
        check_adaptation(found.get("adaptation", {}))
    except InputError as error:
        raise error.at(str(home.settings)) from None
    return found


def check_adaptation(section: Mapping[str, Any]) -> None:
    """Raises for a setting of the adaptation loop that is not known, or a value that is not allowed."""
    of_queries = section.get("queries", {})
    if not isinstance(of_queries, dict) or not all(isinstance(each, dict) for each in of_queries.values()):
        raise InputError("settings of one query have a section of their own, such as [adaptation.queries.slow]")
    AdaptationPolicy(file={k: v for k, v in section.items() if k != "queries"}, of_queries=of_queries)
