"""`python -m kvctl`, the same as the `kvctl` command."""

from kvctl.cli.main import main

if __name__ == "__main__":
    main()
