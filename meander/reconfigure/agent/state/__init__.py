"""State of a host's operators on its way: moved, sent ahead, or built anew from what senders keep."""
