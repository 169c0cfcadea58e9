"""Commands about users."""
