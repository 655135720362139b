"""`python -m linkgauge`."""

from linkgauge.app.cli import main

if __name__ == "__main__":
    main()
