"""`python -m linkgauge`."""

from linkgauge.cli import main

if __name__ == "__main__":
    main()
