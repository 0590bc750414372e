"""Where the frozen program begins. The engine's process begins here too, and must turn off before anything else."""

import multiprocessing

multiprocessing.freeze_support()

if __name__ == "__main__":
    import sys

    from app import main

    sys.exit(main())
