"""The physical plans of the documented queries, as `meander explain --physical` prints them, and as Spark takes them.

After a change on purpose: MEANDER_GOLDEN=write pytest tests/run/execution/test_physical.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lab.workloads.isqd import pairwise
from meander.cli.main import app
from meander.deploy.fragments import Placed, deploy
from meander.lang.query_files import load_queries
from meander.lang.topology.reader import load
from meander.local.run_plan import plan_queries
from meander.model.events import QueryAdded
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from meander.run import session
from meander.run.execution.physical import PREPARED, physical
from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.rewrites import REWRITES
from meander.run.execution.rewrites.rewrite import Conditions
from meander.run.fragments.template import BoundFragment, bind
from meander.run.installation import installation
from tests.run.execution.tasks import ALL, BOTH, CALLED, CHOSEN, FAST, ROW_BY_ROW, SESSION, SUMS, TOP
from tests.run.harness import catalog, queries

ROOT = Path(__file__).parents[3]
TOPOLOGY = ROOT / "examples" / "topologies" / "ring.yaml"
QUERIES = sorted((ROOT / "examples" / "queries").glob("*.[sp][qy]*"))
GOLDEN = Path(__file__).parent / "golden"
OTHERS = (
    "SELECT a.id, b.mm FROM cars AS a, rain AS b MATCH a AND b WITHIN 1 s INTO one",
    "SELECT a.id, b.mm FROM cars AS a, rain AS b MATCH a THEN b WITHIN 1 s INTO one",
    "SELECT road, count(*) AS n FROM cars GROUP BY road WINDOW COUNT(3) INTO one",
    "SELECT a.id, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road AND id > mm WINDOW TUMBLING(500 ms) INTO one",
)


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "_prepare_environment", started)
    monkeypatch.setattr(SparkSession, "__init__", started)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        app(["explain", *arguments, "--physical"])
    shown = capsys.readouterr()
    assert ended.value.code == 0, shown.err
    return shown.out


@pytest.mark.usefixtures("without_spark")
@pytest.mark.parametrize("query", QUERIES, ids=lambda path: path.stem)
def test_documented_queries(query: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(capsys, str(query), "-t", str(TOPOLOGY), "--cores", "2")
    golden = GOLDEN / f"{query.stem}.txt"
    if os.environ.get("MEANDER_GOLDEN") == "write":
        golden.write_text(shown, encoding="utf-8")
    assert shown == golden.read_text(encoding="utf-8")


def test_all_documented_queries_have_a_golden_file() -> None:
    assert len(QUERIES) == 5
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {path.stem for path in QUERIES}


@pytest.mark.usefixtures("without_spark")
def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    query = next(path for path in QUERIES if path.stem == "trains_in_storm")
    (found,) = json.loads(printed(capsys, str(query), "-t", str(TOPOLOGY), "--cores", "2", "--json"))
    assert (found["query"], found["mechanism"], found["cores"]) == ("trains_in_storm", "bottom_up", 2)
    (stage,) = found["physical"][0]["stages"]
    assert [rewrite["name"] for rewrite in stage["rewrites"]] == [rewrite.name for rewrite in REWRITES]
    assert stage["rewrites"][0] == {
        "name": "trailing projection",
        "applies": True,
        "reason": "the driver chooses id, station, speed, wind",
        "from_rows": 0,
        "to_rows": 50_000,
    }
    assert [each["from_rows"] for each in stage["execution"]] == [0, 50_001, 100_000, 500_001]


@pytest.mark.usefixtures("without_spark")
def test_without_a_topology_the_query_is_one_fragment(capsys: pytest.CaptureFixture[str]) -> None:
    script = "CREATE STREAM s (ts timestamp, v double); SELECT v * 2 AS w FROM s WHERE v < 3 INTO out"
    shown = printed(capsys, script, "--cores", "1")
    assert shown.startswith("query query, as one fragment, with 1 core\n\n  the query\n\n    stage 0: filter v < 3")
    assert "late materialisation           Spark reads v and computes w\n" in shown
    assert "250,001 rows" in shown


def test_a_query_without_a_place_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    script = "CREATE STREAM s (ts timestamp, v double); SELECT v FROM s INTO alerts"
    with pytest.raises(SystemExit) as ended:
        app(["explain", script, "-t", str(TOPOLOGY), "--physical"])
    assert ended.value.code == 2
    assert "has no node that produces it" in capsys.readouterr().err


def test_stages_with_the_same_plan_name_each_other() -> None:
    (query,) = queries(CHOSEN)
    pairs = pairwise(query.plan, [("s0", "s2"), ("s1", "s2")])
    (found,) = physical({"all of it": bind(pairs.operators, pairs.inputs)}, Conditions(cores=2))
    merged = [stage.rewrites["merge equal plans"] for stage in found.stages]
    assert [verdict.applies for verdict in merged] == [True, True, False]
    assert merged[0].reason == "stage 1 of all of it has this plan too; what is ready in one round runs as one"
    assert found.stages[0].operators[0] == "window join left.road = right.road WITHIN 1 s"


def test_equal_operators_over_united_tuples_are_one() -> None:
    everything_in_the_cloud = catalog(slots=0)
    engine = Engine(everything_in_the_cloud, mechanism("bottom_up"))
    assert not engine.run([QueryAdded(0, query) for query in queries(FAST)]).unplaced
    plan = everything_in_the_cloud.plan
    deployment = deploy(Placed(plan, everything_in_the_cloud.placement, everything_in_the_cloud.topology))
    installed = installation(plan, deployment, {}).fragments
    shown = [
        stage for f in physical({str(f.fragment): f.bound for f in installed}, Conditions(2)) for stage in f.stages
    ]
    ((computes,),) = [[stage for stage in shown if len(stage.operators) > 1]]
    assert computes.operators[0] == "filter speed > 10 (2 operators)"
    assert computes.rewrites["late materialisation"].reason.startswith("Spark reads speed and computes kmh")


def fragments_of_documented_queries() -> dict[str, BoundFragment]:
    world = load(TOPOLOGY)
    found: dict[str, BoundFragment] = {}
    for path in QUERIES:
        script = load_queries(path, world.streams, world.sinks)
        plan = plan_queries(world, script.queries, "bottom_up")
        found |= {f"{path.stem}, fragment {f.fragment}": f.bound for f in plan.installation.fragments}
    return found


def test_spark_prepares_the_plans_that_are_said_to_be_prepared(spark: SparkSession) -> None:
    bound = fragments_of_documented_queries()
    for text in (ALL, BOTH, CALLED, CHOSEN, FAST, SESSION, TOP, *SUMS, *ROW_BY_ROW, *OTHERS):
        (query,) = queries(text)
        bound[text] = bind(query.plan.operators, query.plan.inputs)
    runner = PreparedRunner(spark, cores=2)
    checked = 0
    for found in physical(bound, Conditions(cores=2)):
        for stage, shown in zip(bound[found.fragments[0]].template.stages, found.stages, strict=True):
            runner.warm_up([stage])
            how = shown.executions[0].how
            assert how.startswith(PREPARED) == (stage.key in runner._idle), (found.fragments, how, runner.refused)
            assert how.startswith("a job of Spark") == (stage.key in runner.refused)
            checked += 1
    assert checked > 20
    assert runner.failures == len(runner.refused) == 1
    runner.close()
