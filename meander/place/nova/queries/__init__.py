"""From queries with joins and aggregates to the question that Nova answers, and back to operators of the plan."""
