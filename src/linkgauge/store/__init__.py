"""The run folder: journal, manifest and Parquet tables; import and export (docs/run-folder.md)."""
