"""The same table in five formats, to the letter."""

import re
from pathlib import Path

import pytest

from tcm.cli.app import main
from tcm.results.formats import FORMATS, csv_text, html_page, latex, markdown, terminal
from tcm.results.identity import Spread
from tcm.results.store import COLUMNS, VERSION, add_rows
from tcm.results.table import ResultTable, cell_frame

FIRST, AVERAGE = ("A>C", "accuracy"), ("Avg", "accuracy")
FRAME = cell_frame(
    [
        (("quoted", "A²LP"), {FIRST: Spread(79.6, 0.3, None), AVERAGE: Spread(89.4, None, None)}),
        (("measured", "a|b"), {FIRST: Spread(71.254, 1.26, 3)}),
        (("measured", "<c>, x_y 50%"), {FIRST: Spread(70.0, 0.5, 2), AVERAGE: Spread(60.0, 0.1, 3)}),
        (("oracle", "a|b"), {FIRST: Spread(99.0, 0.0, 3)}),
    ],
    [FIRST, AVERAGE],
)
TABLE = ResultTable("R&D_1", "last", FRAME)
CAPTION = (
    "R&D_1: accuracy on the target in %, mean ± sample standard deviation over 3 seeds. "
    "Selection: last (the last iterate)."
)


def test_markdown():
    caption, table, *notes = markdown([TABLE]).split("\n\n")
    assert caption == CAPTION.replace("_", r"\_")
    assert table.splitlines() == [
        "| method | A→C | Avg |",
        "| --- | ---: | ---: |",
        "| A²LP (quoted) | 79.6 ± 0.3 | 89.4 |",
        r"| a\|b | **71.3 ± 1.3** |  |",
        r"| \<c\>, x\_y 50% | 70.0 ± 0.5 (n = 2) | 60.0 ± 0.1 |",
        r"| *a\|b (oracle)* | *99.0 ± 0.0* |  |",
    ]
    assert [note.split(":")[0] for note in notes] == ["quoted", "oracle"]


def test_latex():
    lines = latex([TABLE]).splitlines()
    caption = CAPTION.replace("&", r"\&").replace("_", r"\_").replace("%", r"\%").replace("±", r"$\pm$")
    assert lines[:-3] == [
        r"% \usepackage{booktabs, xcolor}",
        r"\begin{table*}",
        r"\centering",
        rf"\caption{{{caption}}}",
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"method & A$\to$C & Avg \\",
        r"\midrule",
        r"A$^2$LP (quoted) & 79.6 $\pm$ 0.3 & 89.4 \\",
        r"\midrule",
        r"a|b & \textbf{71.3 $\pm$ 1.3} &  \\",
        r"\textless{}c\textgreater{}, x\_y 50\% & 70.0 $\pm$ 0.5 (n = 2) & 60.0 $\pm$ 0.1 \\",
        r"\midrule",
        r"\textcolor{gray}{a|b (oracle)} & \textcolor{gray}{99.0 $\pm$ 0.0} &  \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert lines[-3].startswith(r"\par\smallskip{\footnotesize quoted: ")
    assert lines[-2].startswith(r"\par\smallskip{\footnotesize oracle: ")
    assert lines[-1] == r"\end{table*}"


def test_csv_has_one_row_per_number():
    assert csv_text([TABLE]).splitlines() == [
        "benchmark,kind,method,selection,task,metric,mean,deviation,seeds",
        "R&D_1,quoted,A²LP,,A>C,accuracy,79.6,0.3,",
        "R&D_1,quoted,A²LP,,Avg,accuracy,89.4,,",
        "R&D_1,measured,a|b,last,A>C,accuracy,71.25,1.26,3",
        'R&D_1,measured,"<c>, x_y 50%",last,A>C,accuracy,70.0,0.5,2',
        'R&D_1,measured,"<c>, x_y 50%",last,Avg,accuracy,60.0,0.1,3',
        "R&D_1,oracle,a|b,oracle,A>C,accuracy,99.0,0.0,3",
    ]


def test_html():
    page = html_page([TABLE])
    assert f"<caption>{CAPTION.replace('&', '&amp;')}</caption>" in page
    rows = {
        kind: [
            re.findall(r"<(?:td|th)[^>]*>(.*?)</(?:td|th)>", row)
            for row in re.findall(r"<tr>(.*?)</tr>", part, flags=re.DOTALL)
        ]
        for kind, part in re.findall(r'<tbody class="(\w+)">(.*?)</tbody>', page, flags=re.DOTALL)
    }
    assert rows == {
        "quoted": [["A²LP (quoted)", "79.6 ± 0.3", "89.4"]],
        "measured": [
            ["a|b", "<strong>71.3 ± 1.3</strong>", ""],
            ["&lt;c&gt;, x_y 50%", "70.0 ± 0.5 (n = 2)", "60.0 ± 0.1"],
        ],
        "oracle": [["a|b (oracle)", "99.0 ± 0.0", ""]],
    }
    assert ".oracle { color: #767676; }" in page
    assert page.count("<p>") == 2
    assert page.count('<th scope="col">') == 3
    assert page.count('<th scope="row">') == 4


def test_a_long_title_is_not_cut():
    long = cell_frame([(("measured", "x" * 200), {FIRST: Spread(1.0, None, 1)})], [FIRST])
    for text in (write([ResultTable("b", "last", long)]) for write in FORMATS.values()):
        assert "x" * 200 in text


def test_titles_are_never_markup():
    odd = cell_frame([(("measured", "[bold]a[/] {0} \\\x1b"), {FIRST: Spread(1.0, None, 1)})], [FIRST])
    table = ResultTable("b", "last", odd)
    assert "[bold]a[/] {0}" in terminal([table])
    assert "\x1b" not in html_page([table])


def test_terminal():
    plain = terminal([TABLE])
    assert [re.split(" *│ *", line.strip("│ ")) for line in plain.splitlines() if line.startswith("│")] == [
        ["A²LP (quoted)", "79.6 ± 0.3", "89.4"],
        ["a|b", "71.3 ± 1.3"],
        ["<c>, x_y 50%", "70.0 ± 0.5 (n = 2)", "60.0 ± 0.1"],
        ["a|b (oracle)", "99.0 ± 0.0"],
    ]
    assert plain.startswith(CAPTION)
    assert "\x1b" not in plain
    coloured = terminal([TABLE], width=200)
    assert re.search(r"\x1b\[1m *71\.3 ± 1\.3", coloured)
    assert re.search(r"\x1b\[2m *99\.0 ± 0\.0", coloured)


def test_a_terminal_too_narrow_gets_every_number():
    narrow = terminal([TABLE], width=20)
    assert "│ <c>, x_y 50%  │ 70.0 ± 0.5 (n = 2) │ 60.0 ± 0.1 │\n" in narrow
    assert max(len(line) for line in narrow.partition("┏")[0].splitlines()) <= 20


def test_several_tables_are_one_text():
    assert markdown([TABLE, TABLE]) == markdown([TABLE]) + "\n" + markdown([TABLE])
    assert html_page([TABLE, TABLE]).count("<html") == 1
    assert csv_text([TABLE, TABLE]).count("benchmark,") == 1


@pytest.fixture
def store(tmp_path: Path) -> Path:
    row = {**dict.fromkeys(COLUMNS, ""), "version": VERSION, "config": "{}", "benchmark": "Office-31", "task": "A>W"}
    rows = [
        {**row, "method": method, "seed": str(seed), "accuracy": f"{accuracy + seed}", "selection": "last"}
        for method, accuracy in (("dann", 70), ("erm", 60))
        for seed in (0, 1)
    ]
    add_rows(tmp_path / "store.csv", [{**row, "mean_class_accuracy": "1"} for row in rows])
    return tmp_path / "store.csv"


def test_the_command_prints_or_writes(store: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["table", str(store), "--format", "markdown", "--benchmark", "office-31"]) == 0
    printed = capsys.readouterr().out
    assert "| dann | **70.5 ± 0.7** |  |  |  |  |  |  |" in printed
    assert printed.index("| erm |") < printed.index("| dann |")  # as in every table, whichever was finished first
    file = store.with_name("table.md")
    assert main(["table", str(store), "--no-quoted", "--format", "markdown", "--out", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}\n"
    assert file.read_text() == printed  # the paper has no numbers on Office-31
    assert main(["table", str(store)]) == 0
    assert "│ dann   │ 70.5 ± 0.7 │" in capsys.readouterr().out
