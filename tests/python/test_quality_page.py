# SPDX-License-Identifier: BSD-3-Clause
"""The page of the command quality: well-formed, and drawn by a browser where one is installed."""

import html
import html.parser
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree

import pytest

torch = pytest.importorskip("torch")

from open_vc_attn import cli  # noqa: E402
from open_vc_attn.quality import charts  # noqa: E402
from open_vc_attn.quality.report_html import amplification  # noqa: E402

NUMERICS = ("exact", "library", "n0 exp head")
CHARTS = 6  # two of bars or dots, three of lines, one of heads
PICTURES = 2 + 2 * len(NUMERICS)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
VOID = {"meta", "link", "img", "br"}

# Runs in the page once all is loaded. A chart is drawn when its marks have an extent and no
# coordinate is unknown; a page that is wider than its window would be cut off.
SELF_CHECK = """
<script>
document.currentScript.remove();
const drawn = box => box.width > 0 && box.height > 0;
const marks = chart => [...chart.querySelectorAll("rect, circle, path.line")];
addEventListener("load", () => {
  const charts = [...document.querySelectorAll("svg.chart")];
  const found = {
    charts: charts.filter(x => drawn(x.getBoundingClientRect()) && marks(x).length > 0 &&
      marks(x).every(m => m.getTotalLength() > 0 && drawn(x.getBBox()))).length,
    pictures: [...document.images].filter(x => x.complete && x.naturalWidth > 0 &&
      drawn(x.getBoundingClientRect())).length,
    unknown: document.body.innerHTML.split(/NaN|Infinity|undefined/).length - 1,
    overflow: Math.max(0, document.documentElement.scrollWidth - innerWidth),
    rows: document.querySelectorAll("tbody tr").length,
  };
  document.title = "checked " + JSON.stringify(found);
});
</script>
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "x.html"
    words = ["--model", "random", "--count", "8", "--size", "32", "48", "--steps", "3"]
    assert cli.run(["quality", *words, "--numerics", *NUMERICS, "--html", str(path)]) == 0
    return path.read_text(encoding="utf-8")


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page_is_well_formed_and_needs_nothing_else(page):
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    kinds = [tag for tag, _ in tags.seen]
    assert "script" not in kinds and kinds.count("img") == PICTURES
    for tag, attributes in tags.seen:
        for name in ("src", "href"):
            assert attributes.get(name, "data:").startswith("data:"), tag
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert sum('class="chart"' in drawing for drawing in drawings) == CHARTS
    for drawing in drawings:
        xml.etree.ElementTree.fromstring(drawing)
    for name in NUMERICS:
        assert page.count(name) >= 6


def test_names_cannot_add_markup():
    hostile = "</svg><script>x</script>&"
    drawings = (
        charts.legend([hostile]),
        charts.bars([(hostile, 1.0, hostile)]),
        charts.dots([(hostile, 1.0, hostile)], hostile),
        charts.lines([charts.Series(hostile, [1.0])], [hostile], hostile, hostile),
        charts.heat_map([charts.Series(hostile, [1.0])], [hostile], [hostile]),
    )
    for drawing in drawings:
        assert "<script" not in drawing
        xml.etree.ElementTree.fromstring(drawing)


def test_long_names_lose_their_middle_in_charts():
    name = "library:max_extra_steps=4,score_error_target=0"
    drawing = charts.bars([(name, 1.0, "1 %")])
    assert name not in drawing and "library:max_…ror_target=0" in drawing


@pytest.mark.parametrize(
    "values", [[0.0], [0.0, 0.0], [float("inf"), 1.0], [float("nan")], [1e-9, 1e6]]
)
def test_charts_of_odd_values(values):
    rows = [("a", value, "x") for value in values]
    names = [str(i) for i in range(len(values))]
    drawings = (
        charts.bars(rows),
        charts.dots(rows, " dB"),
        charts.lines([charts.Series("a", values)], names, "x", "y"),
        charts.heat_map([charts.Series("a", values)], names, ["g"]),
    )
    for drawing in drawings:
        xml.etree.ElementTree.fromstring(drawing)
        assert not re.search("nan|inf", drawing)


@pytest.mark.parametrize(
    "largest, step", [(0, 1), (1, 0.2), (4, 1), (0.9, 0.2), (80, 20), (7.9, 1), (8, 2), (35, 5)]
)
def test_steps_of_an_axis(largest, step):
    assert charts.nice_step(largest) == pytest.approx(step)


@pytest.mark.parametrize(
    "largest, factor", [(0, 64), (1, 64), (2, 32), (3, 32), (63, 2), (64, 1), (255, 1)]
)
def test_differences_are_amplified_without_clipping(largest, factor):
    assert amplification([torch.tensor([[0, -largest]]), torch.tensor([0])]) == factor


def test_a_browser_draws_everything(page, tmp_path):
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is on PATH")
    path = tmp_path / "checked.html"
    path.write_text(page.replace("</body>", SELF_CHECK + "</body>"), encoding="utf-8")
    for width in (1240, 600):
        result = subprocess.run(
            [
                *(
                    browser,
                    "--headless",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--disable-dev-shm-usage",
                ),
                *(f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},1000"),
                *("--enable-logging=stderr", "--dump-dom", path.as_uri()),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        assert "CONSOLE" not in result.stderr
        title = re.search(r"<title>checked (.*?)</title>", result.stdout)
        assert title is not None
        assert json.loads(html.unescape(title[1])) == {
            "charts": CHARTS,
            "pictures": PICTURES,
            "rows": len(NUMERICS),
            "unknown": 0,
            "overflow": 0,
        }
