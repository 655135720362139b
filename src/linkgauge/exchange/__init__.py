"""Runs in other forms: other tools' logs read, CSV, JSON and other tools' outputs written, SQL asked."""
