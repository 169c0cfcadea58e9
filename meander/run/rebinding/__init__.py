"""Rebinding: fragments change slots while they run, so that no slot falls behind while another one idles."""
