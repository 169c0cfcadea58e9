"""Everything that moves, trains and road vehicles alike: a union, then overlapping windows."""

from meander.lang import Environment, Output, query, sliding


@query
def movement(env: Environment) -> Output:
    trains = env.stream("train").select("ts", "id", "speed", "'rail' AS kind")
    vehicles = env.stream("vehicle").select("ts", "id", "speed", "'road' AS kind")
    return (
        trains.union(vehicles)
        .window(sliding("1 min", "10 s", on="ts"))
        .group_by("kind")
        .select("window_end", "kind", "approx_count_distinct(id) AS moving", "stddev(speed) AS spread")
        .into("dashboard")
    )
