"""Deployment protocols: how running queries get from one deployment to the next. One file each."""
