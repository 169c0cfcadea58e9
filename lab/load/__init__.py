"""Load for services, from processes of their own."""
