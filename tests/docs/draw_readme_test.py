"""The README's picture is what tools/draw_readme.py makes of the measured figures beside it, and shows a budget kept."""

import json
import sys
import unittest
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import draw_readme  # noqa: E402

FIGURES = json.loads(draw_readme.FIGURES.read_text(encoding="utf-8"))


class DrawReadme(unittest.TestCase):
    def test_the_picture_is_drawn_of_the_figures(self):
        drawn = draw_readme.draw(FIGURES)
        self.assertEqual(drawn, draw_readme.PICTURE.read_text(encoding="utf-8"), "run tools/draw_readme.py")

    def test_the_picture_is_in_the_readme(self):
        name = draw_readme.PICTURE.relative_to(ROOT).as_posix()
        self.assertIn(f"]({name})", (ROOT / "README.md").read_text(encoding="utf-8"))

    def test_everything_lies_within_the_picture(self):
        picture = ElementTree.fromstring(draw_readme.draw(FIGURES))
        width, height = (float(picture.get(side)) for side in ("width", "height"))
        for shape in picture.iter("{http://www.w3.org/2000/svg}rect"):
            x, y, w, h = (float(shape.get(name)) for name in ("x", "y", "width", "height"))
            self.assertTrue(x >= 0 and y >= 0 and x + w <= width and y + h <= height, shape.attrib)
        for shape in picture.iter():
            for name in ("x", "x1", "x2"):
                self.assertTrue(0 <= float(shape.get(name, 0)) <= width, shape.attrib)
            for name in ("y", "y1", "y2"):
                self.assertTrue(0 <= float(shape.get(name, 0)) <= height, shape.attrib)

    def test_both_sides_share_the_same_step_and_the_budget_is_kept(self):
        before, after = FIGURES["before"], FIGURES["after"]
        self.assertEqual((before["batch"], before["layer"]), (after["batch"], after["layer"]))
        self.assertEqual(sum(before["rank_loads"]), sum(after["rank_loads"]))
        self.assertLessEqual(max(after["peak_bytes"]), after["budget"])


if __name__ == "__main__":
    unittest.main()
