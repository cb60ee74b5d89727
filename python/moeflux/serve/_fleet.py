"""The settings of a fleet of replicas: what CONFIG of `moeflux-ray serve` may say. Knows keys and
their values; knows nothing of Ray."""

from __future__ import annotations

import ipaddress
import math
import os
import re
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

__all__ = ["Fleet"]

#: Options that the fleet has in the place of each server.
_OF_THE_FLEET = ("host", "port", "unix-socket", "config")


@dataclass(frozen=True)
class Fleet:
    """Replicas of one `moeflux serve`, and how requests reach them."""

    #: Options of `moeflux serve` by their long names, without dashes.
    server: Mapping[str, Any] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8000
    #: Least and greatest number of replicas; equal: no autoscaling.
    replicas_min: int = 1
    replicas_max: int = 1
    #: Requests of a replica, waiting and running, that the autoscaler aims at.
    requests: float = 4.0
    up_after_s: float = 10.0
    down_after_s: float = 300.0
    #: Ray's resources of one replica.
    cpus: float = 1.0
    gpus: float = 0.0
    #: Limits of moeflux.serve.routing.
    routing: Mapping[str, float] = field(default_factory=dict)
    #: Time for running answers and for states when a replica ends.
    drain_s: float = 60.0
    #: The program; empty: the one of this package.
    program: str = ""
    #: The folder from which relative paths go on.
    folder: str = ""
    #: Another value replaces all replicas, one after another.
    revision: str = ""

    @staticmethod
    def of(settings: Any, source: str = "settings") -> "Fleet":
        """Checked settings; ValueError names `source`, the key, what was found and expected."""
        if not isinstance(settings, Mapping):
            raise ValueError(f"{source}: found {_shown(settings)}, expected keys and values")
        values: Dict[str, Any] = {}
        for key, value in settings.items():
            if key not in _KEYS:
                raise ValueError(f"{source}: unknown key {key!r}, expected one of "
                                 f"{', '.join(_KEYS)}")
            try:
                values.update(_KEYS[key](key, value))
            except ValueError as error:
                raise ValueError(f"{source}: {error}") from None
        fleet = Fleet(**values)
        fleet._check_access(source)
        return fleet

    @property
    def parallel(self) -> int:
        """Requests that a replica runs at once."""
        return int(self.server.get("parallel", 4))

    @property
    def queue(self) -> int:
        return int(self.server.get("queue", 64))

    def arguments(self) -> List[str]:
        """The server's options as a command line."""
        result: List[str] = []
        for name, value in self.server.items():
            if name == "allow-public":
                continue  # each server is behind a socket file
            for one in value if isinstance(value, list) else [value]:
                if one is True:
                    result.append(f"--{name}")
                elif one is not False:
                    result += [f"--{name}", str(one)]
        return result

    def key(self) -> Optional[str]:
        """An API key of the servers, if they have any. The file of keys is read here."""
        for name in ("admin-key", "api-key"):
            value = self.server.get(name)
            if value:
                return str(value[0] if isinstance(value, list) else value)
        path = self.server.get("api-key-file")
        if not path:
            return None
        with open(os.path.join(self.folder, str(path)), encoding="utf-8") as file:
            return next((line.strip() for line in file if line.strip()), None)

    def allows_host(self, header: str) -> bool:
        """Whether a request's Host names this fleet, by the rules of `moeflux serve`, which does
        not apply them to requests over its socket file: a name that a web page's owner points here
        is refused. Addresses cannot be such names."""
        allowed = self.server.get("allow-host", [])
        allowed = [str(one) for one in (allowed if isinstance(allowed, list) else [allowed])]
        if not self._is_local() and not allowed:
            return True
        name = header.rpartition(":")[0] if re.search(r":\d*$", header) else header
        if header in allowed or name in allowed:
            return True
        name = name.lower().rstrip(".")
        return name == "localhost" or name.endswith(".localhost") or _is_address(name)

    def _is_local(self) -> bool:
        return self.host == "localhost" or (
            _is_address(self.host) and ipaddress.ip_address(self.host).is_loopback)

    def _check_access(self, source: str) -> None:
        keys = ("api-key", "api-key-file", "admin-key", "allow-public")
        if not self._is_local() and not any(self.server.get(key) for key in keys):
            raise ValueError(f"{source}: host {self.host!r} is reached by other machines, expected "
                             f"one of {', '.join(keys)} in server")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _number(key: str, value: Any, least: float, whole: bool = False) -> Any:
    kind = "an integer" if whole else "a number"
    right = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not right or not math.isfinite(value) or value < least:
        raise ValueError(f"{key}: found {_shown(value)}, expected {kind} of at least {least:g}")
    return value if whole else float(value)


def _text(key: str, value: Any) -> Dict[str, Any]:
    if not isinstance(value, str):
        raise ValueError(f"{key}: found {_shown(value)}, expected a text")
    return {key: value}


def _port(key: str, value: Any) -> Dict[str, Any]:
    if _number(key, value, 1, whole=True) > 65535:
        raise ValueError(f"{key}: found {value}, expected a port up to 65535")
    return {key: value}


def _table(*names: Tuple[str, str, float]) -> Callable[[str, Any], Dict[str, Any]]:
    """A table of numbers: (key, name of the setting, least value)."""
    def read(key: str, value: Any) -> Dict[str, Any]:
        known = {name: (setting, least) for name, setting, least in names}
        if not isinstance(value, Mapping):
            raise ValueError(f"{key}: found {_shown(value)}, expected {', '.join(known)}")
        result = {}
        for name, one in value.items():
            if name not in known:
                raise ValueError(f"{key}: unknown key {name!r}, expected {', '.join(known)}")
            setting, least = known[name]
            result[setting] = _number(f"{key}.{name}", one, least)
        return result
    return read


def _replicas(key: str, value: Any) -> Dict[str, Any]:
    if not isinstance(value, Mapping):
        count = _number(key, value, 1, whole=True)
        return {"replicas_min": count, "replicas_max": count}
    if set(value) != {"min", "max"}:
        raise ValueError(f"{key}: found {_shown(value)}, expected a number, or min and max")
    least = _number(f"{key}.min", value["min"], 1, whole=True)
    return {"replicas_min": least,
            "replicas_max": _number(f"{key}.max", value["max"], least, whole=True)}


def _routing(key: str, value: Any) -> Dict[str, Any]:
    names = ("conversation", "prefix", "share")
    return {key: _table(*((name, name, 0.0) for name in names))(key, value)}


def _server(key: str, value: Any) -> Dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{key}: found {_shown(value)}, expected options of moeflux serve")
    for name, one in value.items():
        if name in _OF_THE_FLEET:
            raise ValueError(f"{key}.{name}: a replica has none, expected outside {key} or not")
        if not isinstance(name, str) or name.startswith("-"):
            raise ValueError(f"{key}: found {_shown(name)}, expected an option without its dashes")
        if not all(isinstance(each, (str, int, float))
                   for each in (one if isinstance(one, list) else [one])):
            raise ValueError(f"{key}.{name}: found {_shown(one)}, expected a text, a number, true, "
                             "false or a list")
    for name in ("parallel", "queue"):
        if name in value:
            _number(f"{key}.{name}", value[name], 0 if name == "queue" else 1, whole=True)
    return {key: dict(value)}


_KEYS: Dict[str, Callable[[str, Any], Dict[str, Any]]] = {
    "server": _server,
    "host": _text,
    "port": _port,
    "replicas": _replicas,
    "autoscale": _table(("requests", "requests", 0.1), ("up-after", "up_after_s", 0),
                        ("down-after", "down_after_s", 0)),
    "resources": _table(("cpus", "cpus", 0), ("gpus", "gpus", 0)),
    "routing": _routing,
    "drain": lambda key, value: {"drain_s": _number(key, value, 0)},
    "program": _text,
    "folder": _text,
    "revision": _text,
}
