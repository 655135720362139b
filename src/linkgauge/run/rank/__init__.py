"""What lives in a rank: the worker, its session of the core, and what ranks tell each other."""
