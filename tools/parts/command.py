"""How the tools in Python begin and end."""
import os
import sys


def run_main(main):
    """Runs main() and exits with the status that it returns. Without a word if what reads the output has ended: `head`."""
    try:
        try:
            status = main()
        finally:  # also after argparse's help: what is flushed later can no longer be caught
            print(end="", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    sys.exit(status)
