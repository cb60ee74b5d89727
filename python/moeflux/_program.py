"""The program that comes with the package: where it is, and what it does for Model."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from typing import Optional

from ._errors import NotFoundError

_NAME = "moeflux"


def _installed() -> Optional[str]:
    """The program of the wheel that this package was installed from."""
    try:
        wheel = importlib.metadata.distribution(_NAME)
    except importlib.metadata.PackageNotFoundError:
        return None
    here = os.path.dirname(os.path.abspath(__file__))
    if os.path.realpath(str(wheel.locate_file(_NAME))) != os.path.realpath(here):
        return None
    found = [str(file.locate()) for file in wheel.files or () if file.name == _NAME]
    return found[0] if found else None


def path() -> str:
    """The program of the same wheel; without a wheel, the one on the PATH."""
    found = _installed() or shutil.which(_NAME)
    if found is None:
        raise NotFoundError("the program moeflux is neither in this package nor on the PATH")
    return found


def pull(name: str) -> str:
    """The path of a model of the hub, downloaded unless it is here."""
    try:
        return _run(name, {"HF_HUB_OFFLINE": "1"}, shows=False)
    except NotFoundError:
        return _run(name, {}, shows=sys.stderr.isatty())


def _run(name: str, variables: dict[str, str], shows: bool) -> str:
    """`shows`: notes and a bar go to standard error, as the program's own do."""
    done = subprocess.run([path(), "pull", "--", name], env={**os.environ, **variables},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=None if shows else subprocess.PIPE, encoding="utf-8",
                          errors="replace", check=False)
    if done.returncode == 0:
        return done.stdout.rstrip("\n")
    lines = (done.stderr or "").strip().splitlines()
    reason = lines[-1].removeprefix("error: ") if lines else "standard error says why"
    raise NotFoundError(f"moeflux pull {name}: {reason}")
