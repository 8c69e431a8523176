"""`python -m cua_lab` is `cua-lab`."""

from cua_lab.cli import main

if __name__ == "__main__":
    main()
