"""`python -m slb` is `slb`."""

from slb.cli import main

if __name__ == "__main__":
    main()
