"""--html: pages in headless Chromium are complete, work offline, are usable, and show the results."""

import array
import json
import os
import random
import re
from pathlib import Path

from browser import Browser
from command import REPOSITORY, CommandTest, npy

AXE = Path(os.environ.get("EVENKEEL_AXE") or REPOSITORY / "build/pages/axe.min.js")
SIZES = [(1280, False), (390, True)]
TINY = REPOSITORY / "data" / "tiny-moe"
TRACE, CONFIG = TINY / "routing_step50.npz", TINY / "config.json"
RUN = ["run", "--scenario", "concentrated:0.9:1", "--ranks", 4, "--experts", 8, "--top-k", 2, "--hidden", 32]
RUN += ["--intermediate", 32, "--tokens", 64, "--min-segment", 8, "--repeat", 2, "--backward", "--budget", "64MiB"]
BENCH = ["bench", "--ranks", 4, "--experts", 8, "--top-k", 2, "--hidden", 32, "--intermediate", 32, "--pairs", 2]
BENCH += ["--tokens", 32, "--min-segment", 8]
SERVED = ["memory", "--serve", "--model", CONFIG, "--parallel", "ep=4"]
PAGES = {
    "place": ["place", TRACE, "--ranks", 8, "--nodes", 2, "-o", "p.json", "--judge", TINY / "routing_step1563.npz"],
    "steps": ["place", TRACE, "--ranks", 4, "--steps", "--step-tokens", 2048, "--redundant-experts", 4],
    "evaluate": ["evaluate", TRACE, "--placement", "p.json", "--step-tokens", 2048],
    "compare": ["compare", TRACE, "--topology", "2x8xh100", "--model", CONFIG, "--budget", "2GiB"],
    "plan": ["plan", TRACE, "--ranks", 16, "--layer", 7, "--planner", "level", "--min-segment", 64],
    "layers": ["plan", TRACE, "--ranks", 8, "--planner", "ep,level", "--min-segment", 64],
    "run": RUN,
    "bench": [*BENCH, "--scenarios", "0.5:1"],
    "ablation": [*BENCH, "--ablation", "capacity-factor"],
    "curves": [*BENCH, "--over-budget", "60%,30%", "--scenarios", "0.5:1", "--backward"],
    "memory": ["memory", "--model", CONFIG, "--parallel", "ep=8", "--counts", TINY / "train_counts.npz"],
    "layouts": ["memory", "--model", CONFIG, "--gpus", 8],
    "serving": SERVED,
}

# Overlapping texts in a drawing; 1 pixel of overlap may come from rounding their boxes.
OVERLAPS = """[...document.querySelectorAll('svg')].flatMap((svg) => {
  const boxes = [...svg.querySelectorAll('text')].filter((text) => text.textContent.trim())
      .map((text) => [text.textContent, text.getBoundingClientRect()]).filter(([, box]) => box.width);
  return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([, q]) =>
      Math.min(p.right, q.right) - Math.max(p.left, q.left) > 1 && Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 3)
    .map(([b]) => `${svg.closest('section').id}: ${a} | ${b}`));
})"""


def data_of(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))


def everything():
    """A document with every kind of section, unknown numbers, and text that looks like HTML."""
    draw = random.Random(4)
    steps, ranks = 40, 12
    heat = [[[1 + 2 * draw.random() for _ in range(steps)] for _ in range(3)] for _ in range(2)]
    heat[0][1][5] = None
    band = {
        key: [at + step / 100 for step in range(steps)] for at, key in enumerate(["least", "median", "p95", "most"])
    }
    bars = [
        {"label": n, "parts": [{"name": "compute", "value": 3 * n}, {"name": "combine", "value": 1}]} for n in range(3)
    ]
    ranks_of = [{"rank": r, "parts": [{"owner": r, "value": 5}, {"owner": 2, "value": r}]} for r in range(ranks)]
    pairs = [[None if a == b else 1000 * a + b for b in range(ranks)] for a in range(ranks)]
    stairs = [{"name": "level", "values": [1 << 20, 40 << 20, 7 << 20]}]
    points = [[0.1, None], [0.2, 1.5, 1.4, 1.6], [1, 1.1]]
    sections = [
        {"kind": "tiles", "verdict": ["It pays.", "By much."], "tiles": [
            {"label": "a", "before": 2, "after": 1, "unit": "ratio"}, {"label": "b", "after": None, "unit": "ms"}]},
        {"kind": "histogram", "unit": "ratio", "x": "max/mean", "y": "steps", "series": [
            {"name": "ep", "values": heat[0][0]}, {"name": "level", "values": [1, 1, 1.5]}]},
        {"kind": "heat", "unit": "ratio", "rows": ["3", "4", "5"], "columns": steps, "least": 1, "panels": [
            {"name": "ep", "values": heat[0]}, {"name": "level", "values": heat[1]}]},
        {"kind": "band", "y": "load", "line": {"y": 1, "label": "mean"}, "panels": [
            {"name": "ep", **band}, {"name": "ep, layer 4", "layer": "4", **band}]},
        {"kind": "matrix", "unit": "bytes", "panels": [{"name": "ep", "values": pairs}, {"name": "level", "values": pairs}]},
        {"kind": "memory", "x": "buffers", "budget": 64 << 20, "panels": [
            {"name": "rank 0", "series": stairs, "marks": [{"at": 0, "label": "plan"}, {"at": 1, "label": "compute"}]}]},
        {"kind": "stack", "unit": "ms", "x": "planner", "y": "time", "line": {"y": 4, "label": "now"}, "panels": [
            {"name": "a", "bars": bars}, {"name": "b", "bars": bars}]},
        {"kind": "plan", "y": "assignments", "panels": [{"name": "level", "ranks": ranks_of, "transfers": [
            {"from": 2, "to": r, "what": f"expert {r}"} for r in range(3, ranks)]}]},
        {"kind": "table", "columns": [{"key": "name", "label": "name"}, {"key": "ms", "label": "time", "unit": "ms"}],
         "rows": [{"name": "b", "ms": 10}, {"name": "a", "ms": None}, {"name": "c", "ms": 9.5}]},
        {"kind": "curves", "x": {"label": "budget", "unit": "share", "log": True}, "y": {"label": "time", "zero": True},
         "panels": [{"name": "0.95:1", "series": [{"name": "ep", "points": points}, {"name": "level", "points": points}]}]},
        {"kind": "notes", "paragraphs": ["Read <b>this</b> & that."]},
    ]  # fmt: skip
    return {
        "title": "All of <it>",
        "command": "evenkeel all",
        "made_with": "a test",
        "notes": ["</script><script>throw Error('run')</script>", "<!-- <script>"],
        "filters": {"layers": ["3", "4", "5"], "steps": [0, steps - 1]},
        "sections": [{"id": f"s{i}", "title": f"The {section['kind']}", "caption": "What it is.", **section} for i, section in enumerate(sections)],
    }  # fmt: skip


class Pages(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        super().setUp()
        errors = self.call("plan", "no file", "--ranks", 1, "--html", "x.html").stderr
        if "this build has no HTML pages" in errors:
            self.skipTest(errors)

    def page(self, words, name="page.html"):
        """Writes a page and returns its path; checks the note that names it."""
        done = self.call(*words, "--html", name)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"note: the page is {name}\n", done.stderr)
        return self.folder / name

    def page_of(self, document):
        """A page with the given document as its data."""
        text = self.page(["plan", self.write("loads.json", {"loads": [9, 1]}), "--ranks", 2]).read_text(
            encoding="utf-8"
        )
        data = json.dumps(document).replace("<", "\\u003c")
        text = re.sub(r'(id="data">).*?(</script>)', lambda m: m[1] + data + m[2], text, count=1, flags=re.S)
        path = self.folder / "document.html"
        path.write_text(text, encoding="utf-8")
        return path

    def open(self, path, *how):
        self.browser.open(path, *how)
        self.assert_quiet(path)

    def assert_quiet(self, path):
        self.assertEqual(self.browser.problems, [])
        self.assertEqual(self.browser.requests, [path.resolve().as_uri()])

    def texts(self, selector):
        return self.browser.ask(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((each) => each.textContent)"
        )

    def assert_usable(self, path, checked=SIZES[-1:]):
        """Checks at the smallest and largest sizes: nothing beyond the edge, no overlaps, a screen reader reaches all."""
        axe = AXE.read_text(encoding="utf-8") if AXE.exists() else None  # axe takes seconds a page
        document = data_of(path.read_text(encoding="utf-8"))
        titles = [section["title"] for section in document["sections"]] + ["Notes"] * bool(document["notes"])
        for size in SIZES:
            self.open(path, *size)
            self.assertEqual(self.texts("h1"), [document["title"]])
            self.assertEqual(self.texts("h2"), titles)
            self.assertEqual(self.browser.ask("document.documentElement.scrollWidth <= innerWidth"), True)
            self.assertEqual(self.browser.ask(OVERLAPS), [])
            self.browser.ask("document.querySelectorAll('details').forEach((each) => { each.open = true; }), 0")
            self.assertEqual(self.browser.ask("document.querySelectorAll('svg, table, dl, h2 + p').length > 0"), True)
            if axe and size in checked:
                self.browser.ask(axe + "; 0")
                found = self.browser.ask(
                    "axe.run().then(({violations}) => violations.map(({id, nodes}) => [id, nodes[0].html]))"
                )
                self.assertEqual(found, [])
            self.assert_quiet(path)

    def test_pages_of_every_command_are_usable_and_ask_nothing_of_a_network(self):
        self.call(*PAGES["place"])
        for name, words in PAGES.items():
            with self.subTest(page=name):
                path = self.page(words, f"{name}.html")
                self.assert_usable(path)
                self.assertLess(path.stat().st_size, 400_000)

    def test_every_kind_of_section_is_usable(self):
        self.assert_usable(self.page_of(everything()), SIZES)

    def test_nothing_overlaps_where_fonts_are_wide(self):
        path = self.page_of(everything())
        for width, _ in SIZES:
            self.open(path, width + 10)
            wide = "html, svg text { font-family: 'DejaVu Sans Mono', monospace !important; letter-spacing: 0 }"
            self.browser.ask(
                f"document.head.append(Object.assign(document.createElement('style'), {{textContent: {json.dumps(wide)}}})), draw_all()"
            )
            self.assertEqual(self.browser.ask(OVERLAPS), [])
            self.assertEqual(self.browser.ask("document.documentElement.scrollWidth <= innerWidth"), True)

    def test_accessibility_is_checked_where_axe_is(self):
        if not AXE.exists():
            self.skipTest(f"there is no {AXE} (tools/setup.sh pages)")
        self.open(self.page_of(everything()))
        self.browser.ask("document.querySelector('main').append(document.createElement('button')), 0")
        self.browser.ask(AXE.read_text(encoding="utf-8") + "; 0")
        self.assertIn("button-name", self.browser.ask("axe.run().then(({violations}) => violations.map(({id}) => id))"))

    def test_tables_are_sorted_by_click_and_by_key_and_unknowns_stay_last(self):
        self.open(self.page_of(everything()))
        sort = "document.querySelector('#s8 thead th:nth-child(2) button')"
        order = "[...document.querySelectorAll('#s8 tbody tr')].map((row) => row.textContent)"
        head = "document.querySelector('#s8 thead th:nth-child(2)').getAttribute('aria-sort')"
        self.assertEqual(self.browser.ask(order), ["b10 ms", "a–", "c9.5 ms"])
        self.browser.ask(f"{sort}.click()")
        self.assertEqual([self.browser.ask(order), self.browser.ask(head)], [["c9.5 ms", "b10 ms", "a–"], "ascending"])
        self.browser.ask(f"{sort}.focus()")
        self.browser.press("Enter")
        self.assertEqual([self.browser.ask(order), self.browser.ask(head)], [["b10 ms", "c9.5 ms", "a–"], "descending"])

    def test_a_heat_map_is_read_by_arrow_keys_and_follows_the_filters(self):
        document = everything()
        self.open(self.page_of(document))
        values = document["sections"][2]["panels"][0]["values"]
        self.browser.ask("document.querySelector('#s2 .inspect').focus()")
        for key in ["ArrowDown", "ArrowRight", "ArrowRight"]:
            self.browser.press(key)
        self.assertEqual(self.texts("#s2 .readout")[0], f"layer 4, step 2: {values[1][2]:.3f}")
        choose = "(id, value) => { const of = document.getElementById(id); of.value = value; of.dispatchEvent(new Event('change')); }"
        for name, value in [("layer", "5"), ("first-step", 7), ("last-step", 9)]:
            self.browser.ask(f"({choose})({json.dumps(name)}, {json.dumps(value)})")
        self.browser.ask("document.querySelector('#s2 .inspect').focus()")
        for key in ["ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"]:
            self.browser.press(key)
        self.assertEqual(self.texts("#s2 .readout")[0], f"layer 5, step 9: {values[2][9]:.3f}")
        shown = "[...document.querySelectorAll('#s3 .panel')].map((panel) => panel.hidden)"
        self.assertEqual(self.browser.ask(shown), [False, True])  # layer 5 has no band
        self.browser.ask(f"({choose})('layer', '4')")
        self.assertEqual(self.browser.ask(shown), [True, False])

    def test_before_and_after_have_one_scale(self):
        document = everything() | {"filters": {}}
        heat = {"kind": "heat", "id": "heat", "title": "heat", "rows": ["0"], "columns": 2, "panels": [
            {"name": "before", "values": [[1, 9]]}, {"name": "after", "values": [[1, 2]]}]}  # fmt: skip
        bar = {"kind": "stack", "id": "bars", "title": "bars", "panels": [
            {"name": n, "bars": [{"label": "0", "parts": [{"name": "x", "value": v}]}]} for n, v in [("a", 8), ("b", 2)]]}  # fmt: skip
        spread = {"kind": "histogram", "id": "spread", "title": "spread", "series": [
            {"name": "a", "values": [1, 9]}, {"name": "b", "values": [9, 9]}]}  # fmt: skip
        document["sections"] = [heat, bar, spread]
        self.open(self.page_of(document))
        pixel = "(panel, x) => [...document.querySelectorAll('#heat .drawing canvas')[panel].getContext('2d').getImageData(x, 3, 1, 1).data]"
        of = {(panel, x): self.browser.ask(f"({pixel})({panel}, {x})") for panel in (0, 1) for x in (5, 900)}
        self.assertEqual(of[0, 5], of[1, 5])
        self.assertNotEqual(of[0, 900], of[1, 900])
        heights = self.browser.ask(
            "[...document.querySelectorAll('#bars rect')].map((each) => +each.getAttribute('height'))"
        )
        self.assertAlmostEqual(heights[0] / heights[1], 4, places=3)
        ends = "[...document.querySelectorAll('#spread .drawing')].map((each) => [...each.querySelectorAll('rect')].filter((bar) => +bar.getAttribute('height')).map((bar) => [bar.getAttribute('x'), +bar.getAttribute('height')]))"
        (low, high), (both,) = self.browser.ask(ends)
        self.assertEqual(high[0], both[0])
        self.assertAlmostEqual(both[1] / low[1], 2, places=3)

    def test_a_page_holds_the_numbers_that_json_has(self):
        self.call(*PAGES["place"])
        path = self.page([*PAGES["evaluate"], "--json"])
        verdict = json.loads(self.call(*PAGES["evaluate"], "--json").stdout)["verdict"]
        document = data_of(path.read_text(encoding="utf-8"))
        sections = {section["id"]: section for section in document["sections"]}
        tiles = {tile["label"]: tile for tile in sections["verdict"]["tiles"]}
        level = tiles["max/mean load, mean over 20 blocks"]
        self.assertEqual(
            [level["before"], level["after"]], [verdict["max_over_mean_before"], verdict["max_over_mean_after"]]
        )
        self.assertEqual(tiles["experts that move"]["after"], verdict["moved_experts"])
        self.assertEqual(": ".join(sections["verdict"]["verdict"][:2]).split(": ", 1)[1], verdict["sentence"])
        steps = sections["steps"]["series"]
        self.assertEqual([one["name"] for one in steps], ["contiguous", "p.json"])
        self.assertAlmostEqual(max(steps[1]["values"]), tiles["max/mean load, worst step"]["after"], places=3)
        heat = sections["layers"]["panels"][1]["values"]
        means = [sum(layer[step] for layer in heat) / len(heat) for step in range(len(heat[0]))]
        for mean, level in zip(means, steps[1]["values"], strict=True):
            self.assertAlmostEqual(mean, level, places=2)

    def test_what_is_printed_stays_as_it_is(self):
        self.call(*PAGES["place"])
        for words in [PAGES["evaluate"], [*PAGES["evaluate"], "--json"], SERVED, [*SERVED, "--json"]]:
            plain, with_page = self.call(*words), self.call(*words, "--html", "x.html")
            self.assertEqual(with_page.stdout, plain.stdout)
            self.assertEqual(with_page.stderr, plain.stderr + "note: the page is x.html\n")

    def test_a_page_of_61_layers_on_64_ranks_stays_below_2_megabytes(self):
        layers, experts, steps = 61, 256, 300
        draw = random.Random(1)
        hot = [draw.lognormvariate(4, 1) for _ in range(layers * experts)]
        counts = array.array("i", (int(load * draw.uniform(0.5, 1.5)) for _ in range(steps) for load in hot))
        (self.folder / "counts.npy").write_bytes(npy((steps, layers, experts), counts, "<i4", "i"))
        words = ["counts.npy", "--axes", "steps,layers,experts", "--ranks", 64]
        self.call("place", *words, "-o", "p.json")
        path = self.page(["evaluate", *words, "--placement", "p.json"])
        self.assertLess(path.stat().st_size, 2_000_000)
        self.open(path)
        self.assertEqual(self.browser.ask(OVERLAPS), [])

    def test_names_of_files_stay_text(self):
        name = "<img src=x onerror=throw(1)>&'\"--<!--<script>.json"
        self.write(name, {"loads": [900, 5, 3, 1]})
        path = self.page(["evaluate", name, "--placement", self.placement("p.json"), "--ranks", 2])
        self.open(path)
        self.assertEqual(self.browser.ask("document.images.length"), 0)
        self.assertIn(name, " ".join(self.texts("td")))

    def placement(self, name):
        self.write("loads.json", {"loads": [900, 5, 3, 1]})
        self.assertEqual(self.call("place", "loads.json", "--ranks", 2, "-o", name).returncode, 0)
        return name

    def test_a_page_that_cannot_be_written_is_refused_before_the_work_and_leaves_nothing(self):
        loads = self.write("loads.json", {"loads": [9, 1]})
        before = (self.folder / loads).read_bytes()
        (self.folder / "folder").mkdir()
        for target, status, why in [
            ("folder", 4, "Is a directory"),
            ("nowhere/x.html", 4, "No such file"),
            (loads, 2, "a file that is read"),
        ]:
            words = ["plan", loads, "--ranks", 2, "--html", target]
            self.assert_refused(words, status, "InvalidArgument", target, why)
        words = ["place", loads, "--ranks", 2, "-o", "p.json", "--html", "./p.json"]
        self.assert_refused(words, 2, "InvalidArgument", "--html", "written by --output")
        self.assertEqual(sorted(each.name for each in self.folder.iterdir()), ["folder", loads])
        self.assertEqual((self.folder / loads).read_bytes(), before)

    def test_print_leaves_out_what_paper_cannot_do(self):
        self.open(self.page_of(everything()), 700, True)
        of = "[...document.querySelectorAll('nav, .filters, .readout, h1')].map((each) => getComputedStyle(each).display)"
        ground = "getComputedStyle(document.documentElement).backgroundColor"
        self.assertNotIn("none", self.browser.ask(of))
        self.assertNotEqual(self.browser.ask(ground), "rgb(255, 255, 255)")
        self.browser.call("Emulation.setEmulatedMedia", media="print")
        self.addCleanup(self.browser.call, "Emulation.setEmulatedMedia", media="")
        self.assertEqual(set(self.browser.ask(of)), {"none", "block"})
        self.assertEqual(self.browser.ask(ground), "rgb(255, 255, 255)")
