import re

from matplotlib.figure import Figure

from tcm.figures.svg import INK, inline_svg, visible


def drawing(label: str = "a") -> Figure:
    figure = Figure(figsize=(2, 2))
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color=INK, marker="o")
    axes.text(0.5, 0.5, label, parse_math=False)
    return figure


def test_the_same_figure_gives_the_same_text():
    assert inline_svg(drawing(), "one", "d") == inline_svg(drawing(), "one", "d")


def test_two_figures_share_no_identifier():
    first, second = (set(re.findall(r' id="([^"]+)"', inline_svg(drawing(), name, "d"))) for name in ("one", "two"))
    assert first
    assert not first & second


def test_every_reference_is_defined():
    svg = inline_svg(drawing(), "one", "d")
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    assert used <= set(re.findall(r' id="([^"]+)"', svg))


def test_stands_inside_a_page():
    svg = inline_svg(drawing(), "one", 'says "hello" & <more>')
    assert svg.startswith("<svg ")
    assert svg.endswith("</svg>")
    assert "says &quot;hello&quot; &amp; &lt;more&gt;" in svg
    assert "currentColor" in svg
    assert INK not in svg
    assert "<style" not in svg
    assert "http" not in svg


def test_text_stays_as_it_is():
    svg = inline_svg(drawing('<b> $x$ id="line_1" 日本'), "one", "d")
    assert '&lt;b&gt; $x$ id="line_1" 日本' in svg


def test_visible():
    assert visible("a\nb\x00\udcff\u202eü日 c") == "a\\nb\\x00\\udcff\\u202eü日 c"
