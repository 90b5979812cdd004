"""`python -m tcm` is the command line."""

import sys

from tcm.cli.app import main

sys.exit(main())
