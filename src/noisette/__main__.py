"""`python -m noisette`: the command line, where the program `noisette` is not on the path."""

from noisette.cli import main

if __name__ == "__main__":
    main()
