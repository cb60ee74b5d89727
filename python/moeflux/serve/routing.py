"""Chooses a replica for a request: by conversation, then by shared prefix, then by load. Knows
requests and names of replicas; knows nothing of Ray, sockets or engines.

A replica is worth staying at because the KV cache of a prompt's beginning is there. Routes learns
from requests alone: each prompt becomes a chain of hashes, one for each message and each 256
characters of a long one, and a chain remembers which replicas were sent it.
"""

from __future__ import annotations

import hashlib
import json
import re
import urllib.parse
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Iterable, Iterator, List, Mapping, Optional, Tuple

__all__ = ["Hints", "Limits", "Routes", "hints"]

#: Characters of one link of a chain; a longer message has several.
LINK_CHARACTERS = 256
#: Links that are hashed; a prompt beyond them is as good as this prefix.
LINKS_MAX = 4096

_IN_PATH = re.compile(r"^(?:/v1)?(?:/moeflux/conversations|/responses)/([^/]+)")


@dataclass(frozen=True)
class Hints:
    """The part of a request that decides where it goes."""

    #: Names a conversation; requests of one name belong together.
    conversation: Optional[str] = None
    #: Hash of each beginning of the prompt with the characters up to there, shortest first.
    prefixes: Tuple[Tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Limits:
    """How much longer a queue may be for the sake of a cache, in rounds: requests of a replica over
    those that it runs at once, beyond those of the least busy replica."""

    #: For a conversation, whose whole past would be computed again elsewhere.
    conversation: float = 4.0
    #: For a prefix that requests share, such as a system prompt.
    prefix: float = 1.0
    #: A shared prefix counts if it is at least this part of the prompt.
    share: float = 0.1


@dataclass
class _Link:
    """A beginning of prompts: which replicas have it, and whether a prompt ended here."""

    replicas: Tuple[str, ...] = ()
    ends: bool = False


class Routes:
    """Remembers conversations and prefixes by replica, the least recently used ones forgotten
    first. One thread at a time."""

    def __init__(self, limits: Limits = Limits(), *, links_max: int = 100_000,
                 conversations_max: int = 50_000) -> None:
        self._limits = limits
        self._links_max = links_max
        self._conversations_max = conversations_max
        self._links: "OrderedDict[int, _Link]" = OrderedDict()
        self._conversations: "OrderedDict[str, str]" = OrderedDict()

    def rank(self, request: Hints, rounds: Mapping[str, float]) -> List[str]:
        """All replicas of `rounds`, which has the load of each, best first."""
        if not rounds:
            return []
        least = min(rounds.values())
        seed = request.conversation or str(request.prefixes[0][0] if request.prefixes else "")
        order = sorted(rounds, key=lambda name: (rounds[name], -_weight(seed, name)))

        def first(names: Iterable[str], limit: float) -> Optional[str]:
            return next((name for name in order
                         if name in names and rounds[name] - least <= limit), None)

        found, characters, goes_on = self._longest(request, rounds)
        best = None
        at = self._conversations.get(request.conversation or "")
        if at is not None:
            best = first((at,), self._limits.conversation)
        if best is None and goes_on:
            best = first(found, self._limits.conversation)
        if best is None and characters >= self._limits.share * _length(request):
            best = first(found, self._limits.prefix)
        return order if best is None else [best] + [name for name in order if name != best]

    def _longest(self, request: Hints,
                 among: Mapping[str, float]) -> Tuple[List[str], int, bool]:
        """Replicas that have the longest prefix, its characters, and whether it is the whole prompt
        of an earlier turn that this request goes on from."""
        found: List[str] = []
        characters, ends = 0, False
        for hashed, length in request.prefixes:
            link = self._links.get(hashed)
            here = [name for name in link.replicas if name in among] if link else []
            if not here or link is None:
                break
            found, characters, ends = here, length, link.ends
        return found, characters, ends and characters < _length(request)

    def learn(self, request: Hints, replica: str) -> None:
        """The request was sent to `replica`, which will have its prompt."""
        if request.conversation:
            self._conversations[request.conversation] = replica
            self._conversations.move_to_end(request.conversation)
            if len(self._conversations) > self._conversations_max:
                self._conversations.popitem(last=False)
        # The longest first, so that a beginning is never forgotten before what follows it.
        for hashed, length in reversed(request.prefixes):
            link = self._links.setdefault(hashed, _Link())
            if replica not in link.replicas:
                link.replicas += (replica,)
            link.ends = link.ends or length == _length(request)
            self._links.move_to_end(hashed)
        while len(self._links) > self._links_max:
            self._links.popitem(last=False)

    def keep_only(self, replicas: Iterable[str]) -> None:
        """Forgets all other replicas: they have ended, and their caches with them."""
        names = set(replicas)
        for key in [key for key, name in self._conversations.items() if name not in names]:
            del self._conversations[key]
        for hashed, link in list(self._links.items()):
            link.replicas = tuple(name for name in link.replicas if name in names)
            if not link.replicas:
                del self._links[hashed]


def _length(request: Hints) -> int:
    return request.prefixes[-1][1] if request.prefixes else 0


def _weight(seed: str, name: str) -> int:
    """Rendezvous hashing: routers that know nothing of each other break ties alike."""
    return _hash(0, f"{seed}\0{name}")


def _hash(before: int, text: str) -> int:
    data = before.to_bytes(8, "big") + text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def hints(path: str, headers: Mapping[str, str], body: bytes) -> Hints:
    """A request's conversation and prompt; `path` with its query, names of headers
    in lower case. A body that is not understood gives no prefix: the engine says what is wrong."""
    parts = urllib.parse.urlsplit(path)
    try:
        fields = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        fields = {}
    if not isinstance(fields, dict):
        fields = {}
    # Servers with several keys have a cache for each.
    owner = headers.get("authorization") or headers.get("x-api-key") or ""
    return Hints(_conversation(parts, headers, fields), tuple(_prefixes(owner, fields)))


def _conversation(parts: urllib.parse.SplitResult, headers: Mapping[str, str],
                  fields: Mapping[str, Any]) -> Optional[str]:
    in_path = _IN_PATH.match(parts.path)
    query = urllib.parse.parse_qs(parts.query)
    named = (headers.get("x-conversation-id"), *query.get("conv_id", ()),
             in_path and urllib.parse.unquote(in_path[1]), fields.get("conversation"),
             fields.get("previous_response_id"), fields.get("prompt_cache_key"))
    return next((name for name in named if isinstance(name, str) and name), None)


def _prefixes(owner: str, fields: Mapping[str, Any]) -> Iterator[Tuple[int, int]]:
    """The chain of a prompt, whichever interface it was written for."""
    before, characters, links = _hash(0, owner), 0, 0
    for text in _texts(fields):
        for at in range(0, max(len(text), 1), LINK_CHARACTERS):
            piece = text[at:at + LINK_CHARACTERS]
            before, characters, links = _hash(before, piece), characters + len(piece), links + 1
            yield before, characters
            if links == LINKS_MAX:
                return


def _texts(fields: Mapping[str, Any]) -> Iterator[str]:
    """The texts of a prompt, in a template's order: tools and system, messages."""
    head = {key: fields[key] for key in ("tools", "system", "instructions") if fields.get(key)}
    if head:
        yield json.dumps(head)
    items = fields.get("messages", fields.get("input"))
    if isinstance(items, list):
        yield from map(_item_text, items)
        return
    for key in ("context", "prompt", "input_prefix", "input", "query"):
        value = fields.get(key)
        if value is not None and value != "":
            yield value if isinstance(value, str) else json.dumps(value)


def _item_text(item: Any) -> str:
    """A message as text. An answer comes back as the client likes to write it, so its role and
    texts alone count."""
    if not isinstance(item, dict):
        return json.dumps(item)
    content = item.get("content")
    if isinstance(content, list):
        content = "".join(part["text"] if isinstance(part, dict) and isinstance(
            part.get("text"), str) else json.dumps(part) for part in content)
    elif not isinstance(content, str):
        content = json.dumps({key: item[key] for key in sorted(item) if key != "id"})
    if item.get("tool_calls"):
        content += json.dumps(item["tool_calls"])
    return f"{item.get('role', '')}\n{content}"
