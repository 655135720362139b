"""The documentation's build: what its pages show of the program is made here from the program (CONTRIBUTING.md)."""
