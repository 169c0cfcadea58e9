"""The directory of a coordinator: its files, its settings, and how it is made."""
