"""The run folder: journal, manifest and Parquet tables; import and export (docs/reference/run-folder.md)."""
