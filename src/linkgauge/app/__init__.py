"""Commands: what a user types. Thin: each reads its options, calls the rooms below and prints what they return."""
