"""A vehicle is fast, and within five seconds the same vehicle is slow: a sequence with a condition over both."""

from meander.lang import Environment, Output, query


@query
def sudden_brakes(env: Environment) -> Output:
    fast = env.stream("vehicle").where("speed > 25").alias("fast")
    slow = env.stream("vehicle").where("speed < 10").alias("slow")
    return (
        fast.then(slow, within="5 s", where="fast.id = slow.id AND fast.road = slow.road")
        .select("fast.id", "fast.road", "slow.x AS place", "fast.speed - slow.speed AS lost")
        .into("alerts")
        .demand("latency < 200 ms", "frequency >= 1 /s")
    )
