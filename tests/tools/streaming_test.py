"""benchmarks/streaming.py: its arithmetic, and a whole run of a program that prints what moeflux
prints, with groups that only pretend."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
from unittest import mock

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "benchmarks"))
import limited_memory  # noqa: E402
import streaming  # noqa: E402

# 1 GB of dense weights and state, 0.5 GB of experts, of which four fifths were cached.
TOKEN = {"dense_bytes_per_token": 0.9e9, "state_bytes_per_token": 0.1e9,
         "expert_bytes_per_token": 0.5e9, "expert_hit_rate": 0.8, "memory_bandwidth": 20e9,
         "avg_ts": 9.0, "n_prompt": 0, "expert_cache_bytes": 4e9, "build_commit": "abc",
         "storage_bytes_per_token": 1e8, "stall_ns_per_token": 5e7}
PLAN = {"memory": {"experts_bytes": 10e9, "slot_bytes": 1000000},
        "prompt": {"cold": {"arithmetic_seconds": 2.0}},
        "speeds": {"drive_bytes": {"per_second": 2e9}, "multiply_adds": {"per_second": 3e11}}}
TRACE = """# route_trace v1
# model=toy arch=toy n_layer=1 n_expert=4 n_expert_used=2
turn,phase,step,layer,slot,expert,weight,residency,expert_bytes,visit
0,0,0,0,0,1,0.5,1,0,0
0,1,1,0,0,1,0.5,1,0,1
0,1,1,0,1,2,0.5,0,9,1
0,1,2,0,0,2,0.5,1,0,2
"""


class BoundsTest(unittest.TestCase):
    def test_reads_hide_behind_their_own_layer_only(self):
        # 0.1 GB missed. Slow drive: 50 ms dense + 100 ms of reads.
        self.assertAlmostEqual(streaming.decode_bound_seconds(TOKEN, 1e9), 0.05 + 0.1)
        # Fast drive: 50 ms dense + 0.6 GB through memory.
        self.assertAlmostEqual(streaming.decode_bound_seconds(TOKEN, 10e9), 0.05 + 0.03)

    def test_a_prompt_waits_for_sweep_or_arithmetic(self):
        self.assertAlmostEqual(streaming.prefill_bound_seconds(PLAN, 4e9, 2e9), 3.0)
        self.assertAlmostEqual(streaming.prefill_bound_seconds(PLAN, 8e9, 2e9), 2.0)
        self.assertAlmostEqual(streaming.prefill_bound_seconds(PLAN, 11e9, 2e9), 2.0)

    def test_bars(self):
        self.assertTrue(streaming.judge_decode({**TOKEN, "avg_ts": 5.7}, 1e9).good)   # of 6.67
        self.assertFalse(streaming.judge_decode({**TOKEN, "avg_ts": 5.6}, 1e9).good)
        prompt = {**TOKEN, "n_prompt": 300}  # bound: 100 tokens/s
        self.assertTrue(streaming.judge_prefill({**prompt, "avg_ts": 80.1}, PLAN, 2e9).good)
        self.assertFalse(streaming.judge_prefill({**prompt, "avg_ts": 79.0}, PLAN, 2e9).good)

    def test_hits_must_be_the_replays_to_the_last(self):
        recorded = streaming.recorded_decode_hits(TRACE.splitlines())
        self.assertEqual(recorded, (2, 3))
        replayed = {"hits": 2, "misses": 1, "hit_rate": 2 / 3}
        self.assertTrue(streaming.judge_routes(recorded, replayed).good)
        self.assertFalse(streaming.judge_routes(recorded, {**replayed, "hits": 1}).good)

    def test_memory(self):
        report = {"peak_bytes": 7, "limit_bytes": 8, "max_rss_bytes": 6, "oom_kills": 0,
                  "swap_bytes": 0, "process_page_faults_major": 50}
        self.assertTrue(streaming.judge_memory("x", report, 40, 20).good)
        for wrong in ({"peak_bytes": 9}, {"oom_kills": 1}, {"swap_bytes": 1},
                      {"process_page_faults_major": 70}):
            self.assertFalse(streaming.judge_memory("x", {**report, **wrong}, 40, 20).good, wrong)


# Prints what the words ask for; records routes where --route-trace says so.
PROGRAM = f"""#!{sys.executable}
import json, sys
words = sys.argv[1:]
token, plan = json.loads({json.dumps(TOKEN)!r}), json.loads({json.dumps(PLAN)!r})
if "--route-trace" in words:
    open(words[words.index("--route-trace") + 1], "w").write({TRACE!r})
if words[0] == "--version":
    print("moeflux")
elif words[0] == "plan":
    print(json.dumps(plan))
elif words[0] == "replay":
    assert words[words.index("--cache") + 1] == "4000", words
    print(json.dumps({{"caches": [{{"hits": 2, "misses": 1, "hit_rate": 0.667}}]}}))
else:
    token["n_prompt"] = int(words[words.index("-p") + 1])
    if token["n_prompt"] > 0:
        token["avg_ts"] = 160.0
    print(json.dumps([token]))
"""


class PretendGroup:
    def __init__(self, parent, limit):
        self.path = tempfile.mkdtemp(dir=parent)
        self.limit = limit

    def report(self):
        os.unlink(os.path.join(self.path, "cgroup.procs"))
        return {"peak_bytes": self.limit // 2, "limit_hits": 0, "oom_kills": 0,
                "page_faults_major": 0, "swap_bytes": 0}


class RunTest(unittest.TestCase):
    def run_script(self, folder, *more):
        program = os.path.join(folder, "moeflux")
        with open(program, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        os.chmod(program, 0o755)
        out = io.StringIO()
        with mock.patch.object(limited_memory, "make_group", PretendGroup), \
                mock.patch.object(limited_memory, "drop_caches"), \
                contextlib.redirect_stdout(out):
            status = streaming.main(["--moeflux", program, "--model", "toy", "--parent", folder,
                                     "--trace", "routes.csv", "--fio-seconds", "0", *more])
        return status, out.getvalue()

    def test_everything_met(self):
        with tempfile.TemporaryDirectory() as folder:
            status, text = self.run_script(folder)
        self.assertEqual(status, 0, text)
        # decode, prefill, routes, and memory of three runs
        self.assertEqual(text.count("| met |"), 6, text)
        self.assertIn("2 of 3, 66.7 %", text)
        self.assertIn("t = D / B_d + max((1 - h) R / B_s", text)

    def test_what_every_run_printed_is_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "raw.json")
            status, text = self.run_script(folder, "--raw", path)
            with open(path, encoding="utf-8") as file:
                kept = json.load(file)
        self.assertEqual(status, 0, text)
        self.assertEqual("streaming", kept["kind"])
        self.assertEqual(["decode", "prefill", "routes"],
                         [run["name"] for run in kept["runs"]])
        self.assertEqual(160.0, kept["runs"][1]["results"][0]["avg_ts"])
        self.assertEqual(8 << 30, kept["runs"][0]["report"]["limit_bytes"])
        self.assertEqual(3, len(kept["plans"]))
        self.assertEqual("abc", kept["programs"][0]["commit"])
        self.assertNotIn(folder, json.dumps(kept))

    def test_a_missed_bar_is_the_exit_status(self):
        with tempfile.TemporaryDirectory() as folder:
            with mock.patch.object(streaming, "DECODE_BAR", 2.0):
                status, text = self.run_script(folder)
        self.assertEqual(status, 1, text)
        self.assertEqual(text.count("MISSED"), 1, text)


if __name__ == "__main__":
    unittest.main()
