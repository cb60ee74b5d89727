"""Replicas of `moeflux serve` on Ray Serve, for `pip install moeflux[ray]`.

    moeflux-ray serve CONFIG

docs/replicas.md describes CONFIG. A replica is an actor with a `moeflux serve` of its own, so every
path, option and limit of the server is there. An ingress reads a request and what it says of its
conversation and prompt; AffinityRouter sends it where its KV cache is (moeflux.serve.routing).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import signal
import sys
import uuid
from collections import Counter, OrderedDict
from typing import Any, AsyncGenerator, Dict, List, Mapping, Optional, Tuple, Union

try:
    import aiohttp
    import ray
    import ray.util.metrics
    import starlette.requests
    import starlette.responses
    import yaml
    from ray import serve
    from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, RequestRouterConfig
    from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
    from ray.serve.handle import DeploymentHandle
    from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica
except ImportError as missing:
    raise ImportError(f"moeflux.serve.ray needs Ray Serve, pip install 'moeflux[ray]': {missing}"
                      ) from missing

from .. import _program
from ._child import Child, Head
from ._fleet import Fleet
from .routing import Hints, Limits, Routes, hints

__all__ = ["AffinityRouter", "Ingress", "Replica", "application", "main"]

APPLICATION = "moeflux"
#: The header that tells which replica answered.
REPLICA_HEADER = "x-moeflux-replica"
#: Bodies beyond this are refused, as by the server.
BODY_BYTES_MAX = 32 << 20
#: Ids of responses whose conversation is known.
RESPONSES_MAX = 50_000
#: Requests of a replica beside those that compute: health, models, stored responses.
SMALL_REQUESTS = 64

_RESPONSE_ID = re.compile(rb'"id":\s*"(resp_[^"\\]+)"')


class RouterOnly:
    """Carries hints to the router of this process; the replica gets None in its place."""

    def __init__(self, request: Hints) -> None:
        self.request = request

    def __reduce__(self) -> Tuple[Any, Tuple[()]]:
        return type(None), ()


class AffinityRouter(RequestRouter):
    """Ray Serve's router of the replicas: ranks them by moeflux.serve.routing, with the requests
    that this process has sent and not seen end as their load."""

    def initialize_state(self, *, parallel: int = 1, **limits: float) -> None:
        """`parallel` requests of a replica are one round; `limits` are those of Limits."""
        self._parallel = parallel
        self._routes = Routes(Limits(**limits))
        self._sent: Dict[str, str] = {}  # replica by request

    def update_replicas(self, replicas: List[RunningReplica]) -> None:
        super().update_replicas(replicas)
        self._routes.keep_only(replica.replica_id.unique_id for replica in replicas)

    async def choose_replicas(self, candidate_replicas: List[RunningReplica],
                              pending_request: Optional[PendingRequest] = None
                              ) -> List[List[RunningReplica]]:
        named = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        load = Counter(self._sent.values())
        rounds = {name: load[name] / self._parallel for name in named}
        if pending_request is None:
            return [[named[name]] for name in self._routes.rank(Hints(), rounds)]
        order = self._routes.rank(_request_of(pending_request), rounds)
        # Where all are full, Ray waits a little between attempts.
        pending_request.routing_context.should_backoff = True
        if order:
            self._count(pending_request, order[0])
        return [[named[name]] for name in order]

    def _count(self, pending: PendingRequest, name: str) -> None:
        """Counts from the choice on, so that requests of one moment see each other."""
        key = pending.metadata.internal_request_id
        if key not in self._sent:
            pending.future.add_done_callback(
                lambda future: self._sent.pop(key, None) if future.cancelled() else None)
        self._sent[key] = name
        self._routes.learn(_request_of(pending), name)

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID,
                          result: Any) -> None:
        key, name = pending_request.metadata.internal_request_id, replica_id.unique_id
        if self._sent.get(key) not in (None, name):
            self._sent[key] = name
            self._routes.learn(_request_of(pending_request), name)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        self._sent.pop(internal_request_id, None)


def _request_of(pending: PendingRequest) -> Hints:
    carried = pending.kwargs.get("carried")
    return carried.request if isinstance(carried, RouterOnly) else Hints()


class Replica:
    """An actor with a server of its own."""

    async def __init__(self, fleet: Fleet) -> None:  # type: ignore[misc]
        self._name = serve.get_replica_context().replica_id.unique_id
        self._child = Child(fleet.program or _program.path(), fleet.arguments(),
                            folder=fleet.folder or None, key=fleet.key())
        self._gauges = {name: ray.util.metrics.Gauge(
            f"moeflux_requests_{name}", description=f"Requests {name} in a replica's engine",
            tag_keys=("replica",)) for name in ("waiting", "running")}
        await self._child.ready()

    async def answer(self, method: str, target: str, headers: Dict[str, str], body: bytes,
                     carried: None = None) -> AsyncGenerator[Union[Head, bytes], None]:
        """The head of the server's answer, then its bytes; `carried` is the router's."""
        pieces = self._child.answer(method, target, headers, body)
        try:
            try:
                head = await pieces.__anext__()
            except aiohttp.ClientError as error:
                yield 503, [("retry-after", "1")]
                yield _error_body(target, f"the replica's server did not answer: {error}")
                return
            assert isinstance(head, tuple)
            yield head[0], [*head[1], (REPLICA_HEADER, self._name)]
            async for piece in pieces:
                yield piece
        finally:
            await pieces.aclose()

    async def metrics(self) -> Tuple[str, str]:
        """This replica's name and the text of its GET /metrics."""
        return self._name, await self._child.metrics()

    async def check_health(self) -> None:
        """Called by Ray Serve, which replaces a replica that raises."""
        self._child.check()
        if not await self._child.health():
            raise RuntimeError("the server refuses requests")
        await self.record_autoscaling_stats()

    async def record_autoscaling_stats(self) -> Dict[str, float]:
        """The engine's own queue, for replicas_wanted() and for Ray's metrics."""
        queue = await self._child.queue()
        for name, gauge in self._gauges.items():
            gauge.set(queue[name], tags={"replica": self._name})
        return queue

    async def __del__(self) -> None:
        # Ray Serve has waited for the answers; an initialisation that failed has no child.
        if hasattr(self, "_child"):
            await self._child.stop()


def replicas_wanted(context: Any) -> Tuple[float, Dict[str, Any]]:
    """Ray Serve's autoscaling policy: requests that wait and run in all engines, over those that a
    replica ought to have. Ray Serve applies the bounds and delays."""
    metrics = context.aggregated_metrics or {}
    requests = sum(sum(metrics.get(name, {}).values()) for name in ("waiting", "running"))
    return requests / context.config.target_ongoing_requests, {}


class Ingress:
    """Takes requests of HTTP, reads what decides their way, and passes answers on as they come."""

    def __init__(self, replicas: DeploymentHandle, fleet: Fleet) -> None:
        self._fleet = fleet
        self._control = replicas
        self._replicas = replicas.options(method_name="answer", stream=True)
        self._responses: "OrderedDict[str, str]" = OrderedDict()  # conversation by response

    async def __call__(self, request: starlette.requests.Request) -> starlette.responses.Response:
        path = request.scope.get("raw_path") or request.url.path.encode()
        target = path.decode("latin-1").partition("?")[0]
        if not self._fleet.allows_host(request.headers.get("host", "")):
            return _refusal(target, 403, "Host names another server (allow-host)")
        if request.method == "GET" and target in ("/metrics", "/v1/metrics"):
            return await self._metrics()
        if request.scope["query_string"]:
            target += "?" + request.scope["query_string"].decode("latin-1")
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > BODY_BYTES_MAX:
                return _refusal(target, 413, f"the body has more than {BODY_BYTES_MAX} bytes")
        headers = dict(request.headers)
        told = hints(target, headers, bytes(body))
        names_response = request.method == "POST" and re.match(r"(/v1)?/responses$", target)
        told = dataclasses.replace(told, conversation=self._responses.get(
            told.conversation or "", told.conversation) or (
                f"response {uuid.uuid4()}" if names_response else None))
        pieces = self._replicas.remote(request.method, target, headers, bytes(body),
                                       carried=RouterOnly(told)).__aiter__()
        try:
            status, fields = await pieces.__anext__()
        except (BackPressureError, DeploymentUnavailableError, ray.exceptions.RayError) as error:
            # Nothing was answered yet, so a client may ask again.
            return _refusal(target, 503, f"the replica ended ({type(error).__name__})")
        response = starlette.responses.StreamingResponse(
            self._watched(pieces, told) if names_response else pieces, status)
        response.raw_headers = [(name.lower().encode("latin-1"), value.encode("latin-1"))
                                for name, value in fields]
        return response

    async def _watched(self, pieces: Any, told: Hints) -> AsyncGenerator[bytes, None]:
        """The same pieces; the id of a response is remembered with its conversation."""
        found = None
        async for piece in pieces:
            if found is None and (found := _RESPONSE_ID.search(piece[:4096])):
                self._responses[found[1].decode()] = told.conversation or ""
                if len(self._responses) > RESPONSES_MAX:
                    self._responses.popitem(last=False)
            yield piece

    async def _metrics(self) -> starlette.responses.Response:
        """Metrics of all replicas, each with the label `replica`."""
        texts = await self._control.broadcast("metrics").results_async()
        return starlette.responses.PlainTextResponse(
            _labelled(dict(texts)), media_type="text/plain; version=0.0.4")


def _labelled(texts: Mapping[str, str]) -> str:
    """Prometheus' texts as one: every sample gets its replica, every comment stands once."""
    samples: Dict[str, List[str]] = {}
    comments: Dict[str, List[str]] = {}
    for replica, text in sorted(texts.items()):
        family = ""
        for line in text.splitlines():
            if line.startswith("#"):
                family = line.split(" ")[2]
                if line not in comments.setdefault(family, []):
                    comments[family].append(line)
                continue
            sample = re.fullmatch(r"([^ {]+)(?:\{(.*)\})? (\S+)", line)
            if sample:
                labels = ",".join(filter(None, (f'replica="{replica}"', sample[2])))
                samples.setdefault(family, []).append(f"{sample[1]}{{{labels}}} {sample[3]}")
    return "".join(line + "\n" for family in samples
                   for line in comments.get(family, []) + samples[family])


def _error_body(target: str, message: str) -> bytes:
    """An error as clients of this path expect it."""
    path = target.partition("?")[0]
    if path.startswith("/api/"):
        return json.dumps({"error": message}).encode()
    if path.removeprefix("/v1").startswith("/messages"):
        return json.dumps({"type": "error", "error": {"type": "overloaded_error",
                                                      "message": message}}).encode()
    return json.dumps({"error": {"message": message, "type": "server_error", "param": None,
                                 "code": None}}).encode()


def _refusal(target: str, status: int, message: str) -> starlette.responses.Response:
    headers = {"retry-after": "1"} if status == 503 else {}
    return starlette.responses.Response(_error_body(target, message), status, headers,
                                        media_type="application/json")


def application(settings: Mapping[str, Any]) -> serve.Application:
    """The Ray Serve application of a fleet; `import_path` of Ray's own configuration files names
    this function, with CONFIG's keys as its `args`. ValueError names a wrong key."""
    return _application(Fleet.of(settings, "args"))


def _application(fleet: Fleet) -> serve.Application:
    scaling: Dict[str, Any] = {"num_replicas": fleet.replicas_min}
    if fleet.replicas_min != fleet.replicas_max:
        scaling = {"autoscaling_config": AutoscalingConfig(
            min_replicas=fleet.replicas_min, max_replicas=fleet.replicas_max,
            target_ongoing_requests=fleet.requests, look_back_period_s=max(fleet.up_after_s, 11),
            upscale_delay_s=fleet.up_after_s, downscale_delay_s=fleet.down_after_s,
            policy=AutoscalingPolicy(policy_function=replicas_wanted))}
    replicas = serve.deployment(
        Replica, max_ongoing_requests=fleet.parallel + fleet.queue + SMALL_REQUESTS,
        ray_actor_options={"num_cpus": fleet.cpus, "num_gpus": fleet.gpus},
        health_check_period_s=5, health_check_timeout_s=60,
        graceful_shutdown_wait_loop_s=0.5, graceful_shutdown_timeout_s=fleet.drain_s,
        request_router_config=RequestRouterConfig(
            request_router_class=AffinityRouter,
            request_router_kwargs={"parallel": fleet.parallel, **fleet.routing}), **scaling)
    # One ingress knows all conversations, and its work is small.
    ingress = serve.deployment(Ingress, max_ongoing_requests=100_000,
                               ray_actor_options={"num_cpus": 0},
                               graceful_shutdown_timeout_s=fleet.drain_s)
    return ingress.bind(replicas.bind(fleet), fleet)


def _read(path: str) -> Fleet:
    with open(path, encoding="utf-8") as file:
        try:
            settings = yaml.safe_load(file)
        except yaml.YAMLError as error:
            raise ValueError(f"{path}: not YAML: {error}") from None
    fleet = Fleet.of(settings, path)
    return dataclasses.replace(fleet, folder=fleet.folder or os.getcwd())


def _say(text: str) -> None:
    print(f"moeflux-ray: {text}", file=sys.stderr, flush=True)


def _deploy(fleet: Fleet) -> None:
    """Returns when all replicas are those of `fleet`; RuntimeError where they do not start."""
    serve.run(_application(fleet), name=APPLICATION, route_prefix="/")
    _say(f"http://{fleet.host}:{fleet.port}/v1 has {fleet.replicas_min} to {fleet.replicas_max} "
         "replicas")


def _serve(path: str) -> None:
    fleet = _read(path)
    # Signals wait until they are asked for, in threads that Ray starts too.
    signals = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    # For processes that Ray starts here: five seconds, its own choice, are too few for a proxy to
    # import its modules on a small or busy machine, and Ray gives up after three of them.
    for name in ("READY", "HEALTH"):
        os.environ.setdefault(f"RAY_SERVE_PROXY_{name}_CHECK_TIMEOUT_S", "60")
    ray.init(include_dashboard=False, configure_logging=False)
    serve.start(http_options={"host": fleet.host, "port": fleet.port})
    try:
        _deploy(fleet)
        while signal.sigwait(signals) == signal.SIGHUP:
            try:
                following = dataclasses.replace(_read(path), host=fleet.host, port=fleet.port,
                                                revision=str(uuid.uuid4()))
                _deploy(following)
                fleet = following
            except (OSError, ValueError) as error:
                _say(f"error: {error}; nothing was changed")
            except RuntimeError as error:  # the servers' own words are above it
                _say(f"error: {error}; going back to the settings before")
                _deploy(fleet)
    except RuntimeError as error:
        raise ValueError(f"{path}: {error}") from None
    finally:
        serve.shutdown()
        ray.shutdown()


def main() -> None:
    """The command `moeflux-ray`."""
    parser = argparse.ArgumentParser(prog="moeflux-ray", description=(
        "Serves one model by several replicas on Ray Serve. SIGHUP reads CONFIG again and replaces "
        "the replicas one after another; Ctrl-C and SIGTERM end them."))
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("serve", help="answer requests until Ctrl-C")
    command.add_argument("config", metavar="CONFIG", help="YAML file, see docs/replicas.md")
    arguments = parser.parse_args()
    try:
        _serve(arguments.config)
    except (OSError, ValueError) as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
