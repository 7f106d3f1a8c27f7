"""`python -m schedscope`: the same as `schedscope`."""

import sys

from schedscope.cli import main

sys.exit(main())
