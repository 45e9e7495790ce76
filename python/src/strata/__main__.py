"""`python -m strata` is the same as the command `strata`."""

from strata.cli import main

if __name__ == "__main__":
    main()
