"""What starts launches, watches them and records what became of them. It never initializes MPI."""
