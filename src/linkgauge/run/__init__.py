"""Running a plan: launchers, MPI libraries, workers, and the watch over them."""
