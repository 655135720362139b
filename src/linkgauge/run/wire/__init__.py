"""What crosses between parent and ranks: spec, token, heartbeat, lines, outcomes, notes."""
