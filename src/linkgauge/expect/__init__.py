"""Expected goodput: what a system's links allow, by named rules."""
