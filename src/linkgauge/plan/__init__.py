"""Plans: which cases to measure, how long each may take, and how they are grouped into launches."""
