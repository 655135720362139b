"""`linkgauge` and `python -m linkgauge`: nothing heavy is imported before signals end the program in a word."""

from __future__ import annotations

from linkgauge import interrupts, started

TYPE_CHECKING = False  # typing's own: interrupts.py
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Entry point of the `linkgauge` program."""
    started.begin()
    interrupts.end_at_once()
    try:
        from linkgauge.app.cli import main as command_line

        command_line()
    except KeyboardInterrupt as error:  # between a command's end and the program's
        interrupts.end(str(error))


if __name__ == "__main__":
    main()
