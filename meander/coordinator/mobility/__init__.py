"""Prediction in the service: mobile nodes' moves are learned, and what would follow them is prepared."""
