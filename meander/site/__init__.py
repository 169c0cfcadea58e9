"""Sites: processes on other machines that run fragments for some nodes, and how they keep in touch."""
