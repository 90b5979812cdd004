"""The page in a real browser: nothing loaded, nothing logged, nothing wider than a phone, printable."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.fake_runs import OBJECTS, write_run
from support.pages import HEAD, TITLES

from tcm.cli.app import main
from tcm.report import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, suite_page: Path) -> list[Path]:
    root = tmp_path_factory.mktemp("runs")
    digits, second = write_run(root / "digits"), write_run(root / "second", seed=1)
    long_names = ["W" * 80, '<b>&"x', *map(str, range(8))]
    paths = ["/very/long/" + "x" * 200] * 600
    small = ["--data.benchmark", "digits", "--steps", "2", "--batch", "2", "--k", "5", "--bank.generator.width", "2"]
    assert main(["mechanisms", *small, "-q", "--out", str(root / "mechanisms")]) == 0
    groups = {
        "several": [digits, second, write_run(root / "erm", method="erm", skill=1.0)],
        "objects": [write_run(root / "objects", classes=OBJECTS, side=64, selection=("dev", "snd"))],
        "head": [write_run(root / "head", variants=("fast", "f_y alone", "W" * 80), head=dict.fromkeys(HEAD, 1e9))],
        "unlabelled": [write_run(root / "unlabelled", labelled=False)],
        "half": [digits, write_run(root / "half", finished=False)],
        "mechanisms": [root / "mechanisms"],
        "nasty": [write_run(root / "nasty", classes=long_names, paths=paths, task=("S" * 90, "<i>t"))],
    }
    return [*(write_report(runs, root / "reports" / name) for name, runs in groups.items()), suite_page]


@pytest.mark.parametrize("width", [390, 1280])
def test_quiet_self_contained_and_never_wider_than_the_screen(browser: "Browser", pages: list[Path], width: int):
    for file in pages:
        requests, complaints = [], []
        page = browser.new_page(
            viewport={"width": width, "height": 844}, color_scheme="dark" if width < 500 else "light"
        )
        page.on("request", lambda request, found=requests: found.append(request.url))
        page.on("console", lambda message, found=complaints: found.append(message.text))
        page.on("pageerror", lambda error, found=complaints: found.append(str(error)))
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, file
        page.eval_on_selector_all("details", "boxes => boxes.forEach(box => box.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, file
        assert [url for url in requests if not url.startswith("data:")] == [file.as_uri()]
        assert complaints == []
        assert page.evaluate("[...document.images].every(image => image.naturalWidth > 0)")
        assert file.stat().st_size < 3_000_000
        page.close()


def test_the_answer_is_on_the_first_screen(browser: "Browser", pages: list[Path]):
    for file in pages[:4]:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(file.as_uri())
        for part in (".answer .big", ".answer .track >> nth=0", ".next ol", ".downloads"):
            box = page.locator(part).bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= 800, (file, part)
        page.close()


def test_predictions_can_be_downloaded(browser: "Browser", pages: list[Path], tmp_path: Path):
    page = browser.new_page()
    page.goto(pages[0].as_uri())
    with page.expect_download() as started:
        page.click(".downloads a >> nth=0")
    assert started.value.suggested_filename == "predictions.csv"
    started.value.save_as(tmp_path / "predictions.csv")
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 601
    page.close()


def test_the_confusion_matrix_fits_a_phone(browser: "Browser", pages: list[Path]):
    for file in pages[:2]:
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.goto(file.as_uri())
        table = page.locator(".confusion >> nth=0")
        box = table.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390, file
        assert float(table.evaluate("part => parseFloat(getComputedStyle(part).fontSize)")) >= 12
        page.close()


def test_long_names_of_a_few_classes_are_whole_on_a_phone(browser: "Browser", tmp_path: Path):
    run = write_run(tmp_path / "run", classes=("Alarm_Clock", "Backpack", "Bed", "Bike", "Bottle"))
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(write_report([run], tmp_path / "report").as_uri())
    cut = "cells => cells.filter(cell => cell.scrollWidth > cell.clientWidth).map(cell => cell.innerText)"
    assert page.locator(".confusion th, .confusion .turned").evaluate_all(cut) == []
    page.close()


def test_no_line_of_a_command_ends_inside_an_option(browser: "Browser", pages: list[Path]):
    page = browser.new_page()
    page.goto(pages[3].as_uri())
    options = page.locator(".command .option")
    assert options.count() > 2
    for width in range(300, 800, 25):
        page.set_viewport_size({"width": width, "height": 800})
        lines = options.evaluate_all("parts => parts.map(part => part.getClientRects().length)")
        assert set(lines) == {1}, width
    page.close()


def test_learning_curves_are_folded(browser: "Browser", pages: list[Path]):
    page = browser.new_page()
    page.goto(pages[0].as_uri())
    assert not page.locator(".curves").is_visible()
    page.click("text=of losses and accuracies")
    assert page.locator(".curves").is_visible()
    page.close()


def test_variants_and_head_fit_a_phone_without_scrolling(browser: "Browser", tmp_path: Path):
    run = write_run(tmp_path / "run", variants=("fast", "f_y alone"), head={**HEAD, "share": 0.0})
    page = browser.new_page(viewport={"width": 375, "height": 800})
    page.goto(write_report([run], tmp_path / "report").as_uri())
    for title in TITLES:
        section = page.locator("section", has=page.get_by_role("heading", name=title))
        assert section.evaluate("part => [...part.querySelectorAll('*')].every(e => e.scrollWidth <= 335)"), title
    assert "The proxies have no effect" in page.locator("section .callout").all_inner_texts()[-1]
    page.close()


def test_prints_with_every_section_open(browser: "Browser", pages: list[Path]):
    page = browser.new_page()
    page.goto(pages[0].as_uri())
    page.eval_on_selector_all("details", "boxes => boxes.forEach(box => box.open = false)")
    paper = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", paper)) > 3
    assert page.eval_on_selector_all("details", "boxes => boxes.every(box => box.open)")
    page.close()


def test_follows_the_colour_scheme(browser: "Browser", pages: list[Path]):
    papers = []
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto(pages[0].as_uri())
        papers.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        page.close()
    assert papers == ["rgb(255, 255, 255)", "rgb(20, 24, 29)"]


def test_command_can_be_copied(browser: "Browser", pages: list[Path]):
    page = browser.new_page()
    page.goto(pages[0].as_uri())
    page.click("text=Copy >> nth=0")
    assert page.evaluate("getSelection().toString()").startswith("tcm predict ")
    page.close()
