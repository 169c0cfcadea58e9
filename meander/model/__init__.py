"""The nouns of Meander: topology, operators, plans, placements, events and demands. Imports nothing of ours."""
