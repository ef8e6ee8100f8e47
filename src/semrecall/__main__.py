"""python -m semrecall: the command line."""

from semrecall.cli import main

if __name__ == "__main__":
    main()
