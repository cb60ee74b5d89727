"""CONFIG of `moeflux-ray`: keys that are read, and errors that name them. Ray is not needed."""

import os
import tempfile
import unittest

from moeflux.serve._fleet import Fleet


class FleetTest(unittest.TestCase):
    def test_all_keys_are_read(self):
        fleet = Fleet.of({
            "host": "127.0.0.2", "port": 8001, "replicas": {"min": 1, "max": 4},
            "autoscale": {"requests": 6, "up-after": 5, "down-after": 60}, "drain": 30,
            "resources": {"cpus": 8, "gpus": 0.5}, "routing": {"prefix": 2, "conversation": 8},
            "program": "/usr/bin/moeflux", "folder": "/srv", "revision": "b",
            "server": {"model": "m", "parallel": 2, "queue": 0}})
        self.assertEqual((fleet.replicas_min, fleet.replicas_max, fleet.requests), (1, 4, 6.0))
        self.assertEqual((fleet.up_after_s, fleet.down_after_s, fleet.drain_s), (5.0, 60.0, 30.0))
        self.assertEqual((fleet.cpus, fleet.gpus, fleet.parallel, fleet.queue), (8.0, 0.5, 2, 0))
        self.assertEqual(fleet.routing, {"prefix": 2.0, "conversation": 8.0})
        self.assertEqual((fleet.host, fleet.port, fleet.program, fleet.folder, fleet.revision),
                         ("127.0.0.2", 8001, "/usr/bin/moeflux", "/srv", "b"))

    def test_options_become_a_command_line(self):
        fleet = Fleet.of({"server": {"model": "a b", "threads": 1, "strict-model": True,
                                     "quiet": False, "allow-public": True,
                                     "model-alias": ["x", "y"]}})
        self.assertEqual(fleet.arguments(), ["--model", "a b", "--threads", "1", "--strict-model",
                                             "--model-alias", "x", "--model-alias", "y"])

    def test_errors_name_file_key_and_expectation(self):
        for settings, expected in [
                ([], "f.yaml: found [], expected keys and values"),
                ({"replica": 2}, "f.yaml: unknown key 'replica', expected one of server, host"),
                ({"replicas": 0}, "f.yaml: replicas: found 0, expected an integer of at least 1"),
                ({"replicas": True}, "f.yaml: replicas: found True, expected an integer"),
                ({"replicas": {"min": 2, "max": 1}},
                 "f.yaml: replicas.max: found 1, expected an integer of at least 2"),
                ({"replicas": {"min": 2}}, "f.yaml: replicas: found {'min': 2}, expected a number"),
                ({"port": 70000}, "f.yaml: port: found 70000, expected a port up to 65535"),
                ({"drain": "long"}, "f.yaml: drain: found 'long', expected a number of at least 0"),
                ({"drain": float("nan")}, "f.yaml: drain: found nan, expected a number"),
                ({"routing": {"luck": 1}}, "f.yaml: routing: unknown key 'luck', expected conv"),
                ({"autoscale": 7}, "f.yaml: autoscale: found 7, expected requests, up-after"),
                ({"server": {"port": 1}}, "f.yaml: server.port: a replica has none"),
                ({"server": {"--model": 1}}, "f.yaml: server: found '--model', expected an option"),
                ({"server": {"model": {}}}, "f.yaml: server.model: found {}, expected a text"),
                ({"server": {"parallel": 0}}, "f.yaml: server.parallel: found 0, expected an int"),
                ({"host": "0.0.0.0"}, "f.yaml: host '0.0.0.0' is reached by other machines")]:
            with self.assertRaises(ValueError) as caught:
                Fleet.of(settings, "f.yaml")
            self.assertIn(expected, str(caught.exception))

    def test_other_machines_need_a_key(self):
        for server in ({"api-key": "k"}, {"api-key-file": "f"}, {"allow-public": True}):
            self.assertEqual(Fleet.of({"host": "0.0.0.0", "server": server}).host, "0.0.0.0")
        for host in ("localhost", "127.0.0.1", "::1"):
            self.assertIsNone(Fleet.of({"host": host}).key())

    def test_names_of_others_are_refused(self):
        local = Fleet.of({"server": {"allow-host": "fleet.example"}})
        for host in ("127.0.0.1:8000", "localhost", "localhost:8000", "a.localhost:1", "[::1]:8000",
                     "192.0.2.1", "fleet.example", "fleet.example:80"):
            self.assertTrue(local.allows_host(host), host)
        for host in ("evil.example", "evil.example:8000", "", "127.0.0.1.evil.example",
                     "localhost.evil"):
            self.assertFalse(local.allows_host(host), host)
        self.assertTrue(Fleet.of({"host": "0.0.0.0", "server": {"api-key": "k"}}).allows_host("a"))

    def test_the_first_key_asks_for_metrics(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "keys"), "w", encoding="utf-8") as file:
                file.write("\nfirst\nsecond\n")
            self.assertEqual(Fleet.of({"folder": folder, "server": {"api-key-file": "keys"}}).key(),
                             "first")
        self.assertEqual(Fleet.of({"server": {"api-key": ["a", "b"]}}).key(), "a")
        self.assertEqual(Fleet.of({"server": {"api-key": "a", "admin-key": "c"}}).key(), "c")


if __name__ == "__main__":
    unittest.main()
