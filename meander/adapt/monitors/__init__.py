"""Monitors, one file each: of a query's metrics, and of the environment."""

from __future__ import annotations

from meander.adapt.monitors.base import EnvironmentMonitor, Monitor
from meander.adapt.monitors.churn import Churn
from meander.adapt.monitors.energy import Energy
from meander.adapt.monitors.frequency import Frequency
from meander.adapt.monitors.hops import Hops
from meander.adapt.monitors.latency import Latency
from meander.adapt.monitors.load import Load
from meander.adapt.monitors.mobility import Mobility
from meander.adapt.monitors.network_usage import NetworkUsage
from meander.adapt.monitors.overhead import Overhead
from meander.adapt.monitors.price import Price
from meander.adapt.monitors.workload import Workload

MONITORS: tuple[Monitor, ...] = (Latency(), Hops(), Overhead(), NetworkUsage(), Load(), Frequency(), Energy(), Price())
ENVIRONMENT: tuple[EnvironmentMonitor, ...] = (Churn(), Mobility(), Workload())

__all__ = ["ENVIRONMENT", "MONITORS", "EnvironmentMonitor", "Monitor"]
