"""Rules that read a run against its system and say what is odd, why, and what to do."""
