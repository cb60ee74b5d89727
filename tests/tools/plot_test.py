"""benchmarks/plot.py: bars from raw files, and this repository's picture."""

import os
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "benchmarks"))
import plot  # noqa: E402
import raw_results  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def record(ours, peers):
    """Prompts and single tokens of two programs."""
    def runs(name, speeds):
        return [{"program": name, "results": [
            {"n_prompt": 512, "n_gen": 0, "n_depth": 0, "samples_ts": [speed]},
            {"n_prompt": 0, "n_gen": 64, "n_depth": 0, "samples_ts": [speed / 10]}]}
                for speed in speeds]
    return {"kind": "side by side", "programs": [{"name": "moeflux"}, {"name": "peer"}],
            "runs": runs("moeflux", ours) + runs("peer", peers)}


class PlotTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        path = os.path.join(self.root, plot.figures.RAW, "2026-01-02-cpu-2-cores.json")
        raw_results.write(path, record([400.0, 500.0, 600.0], [250.0]))
        os.makedirs(os.path.join(self.root, "docs"))

    def test_bars_are_medians_on_one_scale_and_lines_their_ranges(self):
        root = xml.etree.ElementTree.fromstring(plot.picture(self.root))
        bars = [bar for bar in root.iter(SVG + "rect") if bar.get("height") == str(plot.BAR)]
        self.assertEqual(["ours", "peer"] * 2, [bar.get("class") for bar in bars])
        full = plot.WIDTH - plot.LEFT - plot.RIGHT  # what the greatest sample has
        self.assertAlmostEqual(full * 500 / 600, float(bars[0].get("width")), delta=0.1)
        self.assertAlmostEqual(full * 250 / 600, float(bars[1].get("width")), delta=0.1)
        line = next(root.iter(SVG + "line"))
        self.assertAlmostEqual(plot.LEFT + full * 400 / 600, float(line.get("x1")), delta=0.1)
        self.assertAlmostEqual(plot.LEFT + full, float(line.get("x2")), delta=0.1)
        texts = [text.text for text in root.iter(SVG + "text")]
        self.assertEqual(["500", "250", "50.0", "25.0"],
                         [text for text in texts if text[0].isdigit() and " " not in text])

    def test_a_picture_of_other_files_is_found(self):
        self.assertEqual(0, plot.main([], self.root))
        self.assertEqual(0, plot.main(["--check"], self.root))
        with open(os.path.join(self.root, plot.PICTURE), "a", encoding="utf-8") as file:
            file.write("\n")
        self.assertEqual(1, plot.main(["--check"], self.root))


class RepositoryTest(unittest.TestCase):
    def test_the_picture_is_what_the_raw_files_give(self):
        self.assertEqual(0, plot.main(["--check"], ROOT))


if __name__ == "__main__":
    unittest.main()
