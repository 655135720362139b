"""Tables, charts and the report."""
