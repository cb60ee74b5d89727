"""`python -m moeflux`: the program that comes with the package."""

import os
import sys

from ._errors import NotFoundError
from ._program import path

try:
    program = path()
except NotFoundError as error:
    sys.exit(f"moeflux: {error}")
os.execv(program, [program, *sys.argv[1:]])
