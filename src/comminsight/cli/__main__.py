"""``python -m comminsight.cli``."""

import sys

from comminsight.cli import main

if __name__ == "__main__":
    sys.exit(main())
