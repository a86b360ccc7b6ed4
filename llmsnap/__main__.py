"""Run the command line as `python -m llmsnap`."""

from llmsnap.cli import main

if __name__ == "__main__":
    main()
