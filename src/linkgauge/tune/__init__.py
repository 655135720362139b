"""Which settings to export: the table of settings, the search, its proof, and what is handed out."""
