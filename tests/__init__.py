"""Tests mirror the tree of the package. Locks check their order in them, also in processes that they start."""

import os

os.environ["MEANDER_CHECK_LOCKS"] = "1"
