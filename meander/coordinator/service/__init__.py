"""The service: all requests to a coordinator, over HTTP or from Python."""
