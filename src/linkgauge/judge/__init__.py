"""What runs amount to: `check`, baselines, fleets, requirements, two runs compared, advice, and their export."""
