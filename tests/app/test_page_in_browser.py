"""The page in a real browser: uploads, the target, labels by keyboard, a phone, dark mode, and no other site."""

import base64
import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.mistakes import draw_domain
from support.serving import exchange, live_server, request

from tcm.app.api import build_app
from tcm.app.guard import Access, Guard
from tcm.app.runs import open_runs
from tcm.cli.app import main
from tcm.estimation.audit import NONE, UNSURE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

VIEWS = ("#image", "#target", "#audit")
GIVE_FILE = """([kind, name, data]) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, { type: "image/jpeg" }));
  const event = kind === "drop" ? new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true })
    : new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true });
  document.body.dispatchEvent(event);
}"""


@contextmanager
def opened(browser: "Browser", port: int, view: str = "", width: int = 1280, scheme: Any = "light") -> "Iterator[Page]":
    """The page, which may neither complain nor ask another site; problems of a test itself come first."""
    complaints: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    own = (f"http://127.0.0.1:{port}/", "data:")
    page.on("request", lambda request: None if request.url.startswith(own) else complaints.append(request.url))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text))
    try:
        page.goto(f"http://127.0.0.1:{port}/{view}")
        page.wait_for_selector("html[data-ready]")
        yield page
    finally:
        page.close()
    # A refusal of the server is no mistake of the page.
    assert [line for line in complaints if "the server responded with a status of 4" not in line] == []


def wait_for_text(page: "Page", part: str, text: str) -> None:
    from playwright.sync_api import expect  # `page.wait_for_function` is eval, which the server's policy forbids

    expect(page.locator(part)).to_have_text(text)


def wait_for_count(page: "Page", part: str, count: int) -> None:
    from playwright.sync_api import expect

    expect(page.locator(part)).to_have_count(count)


def rows(file: Path) -> list[tuple[str, str]]:
    with file.open(newline="") as text:
        return [(row["path"], row["label"]) for row in csv.DictReader(text) if row["label"]]


def sample(port: int) -> dict[str, Any]:
    return exchange(port, request("GET", "/audit")).json


def test_uploads_are_chosen_dropped_or_pasted(browser: "Browser", live: int, places: Any):
    file = places.data / "Clipart" / "hat" / "1.jpg"
    data = base64.b64encode(file.read_bytes()).decode()
    with opened(browser, live) as page:
        for kind in ("choose", "drop", "paste"):
            page.evaluate("document.getElementById('answer').replaceChildren()")
            if kind == "choose":
                page.set_input_files("#files", file)
            else:
                page.evaluate(GIVE_FILE, [kind, "1.jpg", data])
            page.wait_for_selector("#answer .card")
            assert page.locator("#answer .card h3").all_inner_texts() == ["erm", "tcm"]
            assert page.locator("#answer .bars >> nth=0 >> li").count() == 3
            captions = page.locator("#answer .figures >> nth=0 >> figcaption").all_inner_texts()
            assert [caption.split("\n")[0] for caption in captions] == [
                *("the image", "mechanism 1", "mechanism 2", "mean of all")
            ]
            assert page.locator("#answer .winner").count() == 1
            loaded = "images => images.every(image => image.complete && image.naturalWidth > 0)"
            assert page.eval_on_selector_all("#answer img", loaded)
        assert page.locator("#problem").is_hidden()


def test_where_the_model_looks_can_be_hidden(browser: "Browser", live: int, places: Any):
    with opened(browser, live) as page:
        for file in sorted((places.data / "Clipart").rglob("*.jpg")):  # networks of two steps do not always look
            page.set_input_files("#files", file)
            page.wait_for_selector("#answer .card")
            wait_for_text(page, "#waiting", "")
            if page.locator("#answer .heat").count():
                break
        heat = page.locator("#answer .heat >> nth=0")
        assert heat.is_visible()
        page.get_by_label("show where the model looks").uncheck()
        assert not heat.is_visible()


def test_several_uploads_are_listed(browser: "Browser", live: int, places: Any):
    files = sorted((places.data / "Clipart").rglob("0.jpg"))
    with opened(browser, live) as page:
        page.set_input_files("#files", files)
        page.wait_for_selector("#uploaded button")
        assert page.locator("#uploaded button").count() == 3
        page.locator("#uploaded button >> nth=2").click()
        assert page.locator("#uploaded button >> nth=2").get_attribute("aria-pressed") == "true"


def test_a_corrupt_upload_gives_its_reason(browser: "Browser", live: int, tmp_path: Path):
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    with opened(browser, live) as page:
        page.set_input_files("#files", tmp_path / "broken.png")
        page.wait_for_selector("#problem:not([hidden])")
        assert "broken.png" in page.inner_text("#problem")


def test_the_target_is_browsed_by_keyboard(browser: "Browser", live: int):
    with opened(browser, live, "#target") as page:
        page.wait_for_selector(".tile img")
        assert page.locator(".tile").count() == 18
        page.locator(".tile").first.focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("Enter")
        page.wait_for_selector("#dialog-answer .card")
        expected = exchange(live, request("GET", "/target")).json["rows"][1]
        assert page.inner_text("#dialog-title") == expected["path"].split("/")[-1]
        shown = page.locator("#dialog-answer .bars >> nth=0 >> .name >> nth=0").inner_text()
        assert shown == expected["predictions"][0]["name"]
        page.keyboard.press("Escape")
        assert not page.locator("#dialog").is_visible()
        assert page.evaluate("document.activeElement === document.querySelectorAll('.tile')[1]")
        page.select_option("#order", "files")
        page.wait_for_selector(".tile:first-child img[src='/target/0/image']")


def test_labels_in_the_list_stand_apart(browser: "Browser", live: int, places: Any):
    order = [row["path"] for row in exchange(live, request("GET", "/target")).json["rows"]]
    with opened(browser, live, "#target") as page:
        page.wait_for_selector(".tile img")
        assert "do not count for the audit" in page.inner_text("#target .notice")
        page.locator(".tile").first.focus()
        for key in ("c", "h", "k", "-", " "):  # without waiting for the server
            page.keyboard.press(key)
        wait_for_count(page, ".tile .tag", 5)
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("Backspace")
        wait_for_count(page, ".tile .tag", 4)
        page.keyboard.press("Enter")
        page.wait_for_selector("#dialog-answer .card")
        page.keyboard.press("k")  # labels, and shows the next image
        wait_for_count(page, ".tile .tag", 5)
        assert page.inner_text("#dialog-title") == order[5].split("/")[-1]
    given = dict(zip(order, ("cup", "hat", "key", NONE, "key"), strict=False))
    assert dict(rows(places.erm / "doubt-labels.csv")) == given
    assert sample(live)["labels"] == {}


def test_the_audit_takes_one_key_per_image(browser: "Browser", live: int, places: Any):
    state = sample(live)
    with opened(browser, live, "#audit") as page:
        assert page.inner_text("#count") == "0 of 5"
        assert page.locator("#compute").is_disabled()
        for key in ("c", "k", "Backspace", "h", "-"):  # the second was a hat
            page.keyboard.press(key)
        wait_for_text(page, "#count", "3 of 5")
        assert page.evaluate("document.getElementById('sampled').src").endswith(f"/target/{state['images'][3]}/image")
        page.reload()
        page.wait_for_selector("html[data-ready]")
        assert page.inner_text("#count") == "3 of 5"  # the server has kept the labels
        page.click("#asking >> text=cannot tell")
        page.keyboard.press("x")  # no class has this key
        page.keyboard.press("K")
        page.wait_for_selector("#done:not([hidden])")
        assert not page.locator("#audit .guesses").count()  # predictions stay hidden
        page.click("#compute")
        page.wait_for_selector("#results li")
        said = page.locator("#results li").all_inner_texts()
    assert [label for _, label in rows(Path(state["file"]))] == ["cup", "hat", NONE, UNSURE, "key"]
    assert [line.split(":")[0] for line in said] == ["erm", "tcm"]
    assert all("of 4 labelled images are right" in line for line in said)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_fits_a_phone_in_both_schemes(browser: "Browser", live: int, places: Any, scheme: str):
    paper = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 29)"}[scheme]
    with opened(browser, live, width=390, scheme=scheme) as page:
        page.set_input_files("#files", sorted((places.data / "Clipart").rglob("0.jpg")))
        page.wait_for_selector("#uploaded button")
        for view in VIEWS:
            page.click(f"nav a[href='{view}']")
            page.wait_for_selector(view, state="visible")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
        page.click("nav a[href='#target']")
        page.click(".tile >> nth=0")
        page.wait_for_selector("#dialog-answer .figures")
        dialog = page.locator("#dialog")
        assert dialog.evaluate("part => part.scrollWidth <= part.clientWidth && part.clientWidth <= 390")


def test_the_description_of_the_api_needs_no_other_site(browser: "Browser", live: int):
    requests: list[str] = []
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"http://127.0.0.1:{live}/docs")
    page.wait_for_selector("text=/predict")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert "curl -F images=@image.png" in page.inner_text("main")
    assert all(url.startswith(f"http://127.0.0.1:{live}/") for url in requests)
    page.close()


def test_a_script_in_the_page_does_not_run(browser: "Browser", live: int):
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{live}/")
    page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.hacked = true";
          document.body.append(script);
        }"""
    )
    assert page.evaluate("window.hacked") is None
    page.close()


def test_every_control_has_a_name_and_can_be_reached(browser: "Browser", live: int):
    with opened(browser, live) as page:
        for view in VIEWS:
            page.click(f"nav a[href='{view}']")
            unnamed = page.evaluate(
                """() => [...document.querySelectorAll("button, select, input, a, img")]
                  .filter((part) => part.checkVisibility())
                  .filter((part) => !(part.innerText || part.alt || part.labels?.length || part.ariaLabel))
                  .map((part) => part.outerHTML)"""
            )
            assert unnamed == [], view
        page.click("nav a[href='#image']")
        page.locator("#files").focus()
        assert page.evaluate("document.activeElement.id") == "files"


def test_many_classes_are_found_by_typing(browser: "Browser", tmp_path: Path):
    classes = tuple(f"Object_{number:02d}" for number in range(40))
    for place, name in enumerate(("Art", "Clipart")):
        draw_domain(tmp_path / name, classes, each=4, first_seed=9000 * place, side=16)
    folders = ["--data.source-dir", str(tmp_path / "Art"), "--data.target-dir", str(tmp_path / "Clipart")]
    small = ["--data.size", "32", "--data.crop", "32", "--steps", "1", "--batch", "2", "--device", "cpu", "-q"]
    assert main(["train", "erm", *folders, *small, "--out", str(tmp_path / "run")]) == 0
    app = build_app(open_runs([tmp_path / "run"], "cpu", quiet=True), sample=3)
    with live_server(Guard(app, Access(None, local=True))) as port, opened(browser, port, "#audit") as page:
        page.keyboard.type("t_31")
        page.keyboard.press("Backspace")  # a letter, not a label
        page.keyboard.type("2")
        assert page.locator("#asking .classes button").all_inner_texts() == ["Object_32"]
        page.keyboard.press("Enter")
        wait_for_text(page, "#count", "1 of 3")
        page.keyboard.press("Enter")  # nothing was typed
        page.click("#asking >> text=Object_07")
        wait_for_text(page, "#count", "2 of 3")
        page.keyboard.press("Alt+-")
        page.wait_for_selector("#done:not([hidden])")
        assert sorted(sample(port)["labels"].values()) == sorted(["Object_32", "Object_07", NONE])
