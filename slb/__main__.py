"""Where the program `slb` begins, and `python -m slb`."""

import signal


def main() -> None:
    """Run what was typed. Importing it all takes a moment: a Ctrl-C in that is the end, and shows no traceback."""
    interrupted = signal.getsignal(signal.SIGINT)
    if interrupted is signal.default_int_handler:  # and not ignored, as for what a script puts in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from slb.cli import main as run

    signal.signal(signal.SIGINT, interrupted)
    run()


if __name__ == "__main__":
    main()
