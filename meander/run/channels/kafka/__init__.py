"""Channels over a Kafka broker that two sites share."""
