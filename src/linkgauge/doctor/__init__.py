"""What is wrong with a set-up, and the remedy, before a run."""
