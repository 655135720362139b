"""What is wrong with a set-up, and the fix, before a run."""
