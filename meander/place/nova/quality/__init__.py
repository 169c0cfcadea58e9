"""The quality of a placement: latency, validity, and the optimum of small cases."""
