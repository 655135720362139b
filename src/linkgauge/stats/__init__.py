"""Statistics of samples: medians, intervals, comparison."""
