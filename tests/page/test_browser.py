"""The page in a real browser, looking at a real coordinator with trains that move and queries on Spark.

Tests share one demo and leave it running; the last one ends it and compares every result with a batch run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.page.conftest import RunningDemo

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

TIMEOUT_MS = 90_000


@pytest.fixture
def page(browser: Browser, demo: RunningDemo) -> Iterator[Page]:
    """A page that has been opened with the operator's token; it must not have failed in any way."""
    assert demo.coordinator is not None
    page = browser.new_page(viewport={"width": 1366, "height": 768})
    page.set_default_timeout(TIMEOUT_MS)
    failures: list[str] = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.on("console", lambda m: failures.append(m.text) if "Content Security Policy" in m.text else None)
    page.goto(demo.coordinator.page)
    page.wait_for_selector("button.query")
    yield page
    page.close()
    assert not failures


def _choose(page: Page, node: str) -> None:
    page.fill("input[type=search]", node)
    page.keyboard.press("Enter")
    page.wait_for_selector(f".inspector h2:text-is('{node}')")


def test_the_page_shows_the_world(page: Page) -> None:
    page.wait_for_selector("text=all well")
    assert "code" not in page.url, "the code must not stay in the address"
    page.wait_for_selector("button.query:has-text('station_load')")
    assert page.locator("button.query strong").all_inner_texts() == ["slow_trains", "station_load"]
    assert "nodes" in page.inner_text(".map-summary")
    assert page.locator(".chart").count() == 4
    page.wait_for_selector(".totals div:nth-child(2) dd:not(:text-is('–'))")


def test_trains_move(page: Page) -> None:
    _choose(page, "train-1")
    before = page.inner_text(".inspector .where")
    picture = page.evaluate("document.querySelector('canvas.map').toDataURL()")
    page.wait_for_selector(f".inspector .where:not(:text-is('{before}'))")
    assert before.startswith("now at 13.")
    assert page.evaluate("document.querySelector('canvas.map').toDataURL()") != picture


def test_moves_that_are_expected_show_with_their_reason(page: Page) -> None:
    page.click("#tab-moves:visible")
    page.wait_for_selector(".moves li[data-node='train-1']")
    totals = {"outcomes": {"hit": 1, "miss": 1, "expired": 1}, "used_bytes": 4_000, "wasted_bytes": 3_000}
    nothing: dict[str, Any] = {
        "next": None,
        "probability": None,
        "in_s": None,
        "prepared_for": None,
        "bytes": 0,
        "operators": [],
    }
    ahead = {"next": "base-2", "probability": 0.92, "in_s": 12.0, "prepared_for": "base-2", "operators": [7]}
    nodes = [
        {"node": "train-1", "at": "base-1", "ready": True, "bytes": 5_000, **ahead},
        {"node": "train-2", "at": "base-5", "ready": False, **nothing},
    ]
    came = {"node": "train-1", "at_ms": 0, "from": "base-0", "expected": "base-1", "probability": 0.75}
    recent = [
        {**came, "to": "base-1", "outcome": "hit", "operators": [7, 8], "bytes": 4_000},
        {**came, "to": "base-9", "outcome": "miss", "operators": [7], "bytes": 3_000},
        {**came, "to": None, "outcome": "expired", "operators": [], "bytes": 0},
    ]
    shown = {"mode": "markov", **totals, "trials": 1, "trial_s": 0.1, "nodes": nodes, "recent": recent}
    page.route("**/api/v1/predictions", lambda route: route.fulfill(json=shown))
    reason = "92 % of the moves from here went there, in 12 s; 1 operator prepared at base-2, 5 kB of state sent ahead"
    page.wait_for_selector(f".moves li:has-text('{reason}')")
    assert "moves as expected" in page.inner_text(".moves")
    hit, miss, expired = page.locator(".moves .judged li p").all_inner_texts()
    assert hit == "as expected, with 75 %; 4 kB of state of 2 operators was there before it"
    assert miss == "expected at base-1 with 75 %; 3 kB of state of 1 operator sent ahead in vain"
    assert expired == "expected at base-1 with 75 %, but it did not move in time"
    page.unroute("**/api/v1/predictions")


def test_sites_show_who_keeps_their_replicas(page: Page) -> None:
    lags = [
        {"keeper": "home", "state": "in step", "behind_bytes": 0, "behind_ms": 4},
        {"keeper": "hub", "state": "behind", "behind_bytes": 1_200_000, "behind_ms": 4_000},
    ]
    serving = [{"keeper": "west", "state": "serving", "behind_bytes": 0, "behind_ms": 0}]
    sites = [
        {
            "site": "west",
            "state": "here",
            "nodes": ["e0"],
            "replicas": {"lags": lags, "stands_in": None, "problem": None},
        },
        {
            "site": "east",
            "state": "away",
            "nodes": ["e1"],
            "replicas": {"lags": serving, "stands_in": "west", "problem": "no room"},
        },
    ]
    assert not page.is_visible("#tab-sites")
    page.route("**/api/v1/sites", lambda route: route.fulfill(json=sites))
    page.click("#tab-sites:visible")
    west, east = page.locator(".sites li").all_inner_texts()
    assert "replica at the coordinator: in step" in west
    assert "replica at hub: behind by 1.2 MB, 4 s" in west
    assert "its replica at west is serving in its place" in east
    assert "no room" in east
    page.unroute("**/api/v1/sites")


def test_a_query_submitted_in_the_page_yields_results(page: Page) -> None:
    page.click("text=Add query")
    page.click("dialog .chip:text('Fast trains')")
    page.fill("#query-name", "fast")
    page.fill(".editor textarea", "SELECT id, station, speed FROM train WHERE speed >= 0 INTO alerts")
    page.click("dialog button.primary")
    page.wait_for_selector(".query-view h2:text-is('fast')")
    page.wait_for_selector(".query-view .results tbody tr")
    assert page.locator(".query-view .results th").all_inner_texts() == ["id", "station", "speed"]
    page.wait_for_selector(".dag-label:text('source train')")


def test_a_mistake_is_shown_at_its_place(page: Page) -> None:
    page.click("text=Add query")
    page.fill(".editor textarea", "SELECT id\nFROM trian\nINTO alerts")
    page.click("dialog button.primary")
    page.wait_for_selector(".mistake:visible")
    assert "no stream 'trian'; known streams: train" in page.inner_text(".mistake")
    assert page.locator(".editor mark").text_content() == "trian"
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")


def test_what_if_says_what_would_move_and_nothing_does(page: Page) -> None:
    _choose(page, "exchange-1")
    page.click(".inspector button:text-is('What if?')")
    page.wait_for_selector(".inspector footer p:text-matches('^If so, [0-9]+ operators? would move')")
    page.wait_for_selector(".inspector button:text-is('Kill exchange-1')")
    page.wait_for_selector(".inspector .rows:has-text('window aggregate')")
    page.click("button.query:has-text('station_load')")
    page.wait_for_selector(".dag-group:has(.dag-label:text('window aggregate')) .dag-node:text('exchange-1')")


def test_a_link_is_cut_and_restored(page: Page) -> None:
    _choose(page, "control")
    page.click("button[aria-label='Cut the link to exchange-1']")
    page.wait_for_selector(".notice:has-text('control')")
    page.wait_for_selector(".inspector .struck:text-is('exchange-1')")
    page.wait_for_selector("button[aria-label='Cut the link to exchange-1']", state="detached")
    page.click("button[aria-label='Restore the link to exchange-1']")
    page.wait_for_selector("button[aria-label='Cut the link to exchange-1']")
    page.wait_for_selector(".inspector .struck:text-is('exchange-1')", state="detached")


def test_an_operator_is_moved_by_hand_and_released(page: Page) -> None:
    page.click("button.query:has-text('station_load')")
    aggregate = ".dag-group:has(.dag-label:text('window aggregate'))"
    page.wait_for_selector(f"{aggregate} .dag-node:text('exchange-1')")
    _choose(page, "exchange-1")
    page.click(".inspector .rows li:has-text('window aggregate') button:text-is('Move')")
    page.select_option("#move-node", "exchange-2")
    page.click("dialog button:text-is('What if?')")
    page.wait_for_selector("dialog p:text-matches('^If so, 1 operator would move')")
    page.click("dialog button:text-is('Move')")
    page.wait_for_selector(f"{aggregate} .dag-node:text('exchange-2')")
    page.wait_for_selector("dialog", state="detached")
    _choose(page, "exchange-2")
    page.click(".inspector .rows li:has-text('window aggregate') button:text-is('Release')")
    page.wait_for_selector(f"{aggregate} .dag-node:text('exchange-1')")
    _choose(page, "exchange-1")
    page.wait_for_selector(".inspector .rows li:has-text('window aggregate') button:text-is('Move')")
    page.wait_for_selector(".inspector button:text-is('Release')", state="detached")


def test_a_query_switches_to_another_mechanism(page: Page) -> None:
    page.click("button.query:has-text('slow_trains')")
    page.wait_for_selector(".query-view p:text-matches('^in use')")
    before = page.input_value("select[aria-label='Mechanism']")
    other = "top_down" if before != "top_down" else "bottom_up"
    page.select_option("select[aria-label='Mechanism']", other)
    page.wait_for_selector(f".query-view p:text-matches('^{before} is in use')")
    page.wait_for_selector(".predicted p:has-text('a switch would move')")
    page.select_option("select[aria-label='Protocol']", "restart")
    page.wait_for_selector(".predicted p:has-text('by restart in')")
    page.click(".query-view button:text-is('Switch')")
    page.wait_for_selector(".query-view p:text-matches('^in use')")
    page.wait_for_function("m => document.querySelector('select[aria-label=Mechanism]')?.value === m", arg=other)
    page.click("#tab-decisions")
    page.wait_for_selector(f".decisions li:has-text('slow_trains') .tags:has-text('{before}'):has-text('{other}')")
    page.click(".decisions li:has-text('arrived') summary:has-text('by restart')")
    page.wait_for_selector(".decisions li details .figures th:text-is('took')")
    page.click("summary:text-is('What mechanisms exchange')")
    page.wait_for_selector(
        f"[aria-label='What mechanisms exchange'] tr:has(th:text-is('{other}')) td:not(:text-is('0 B'))"
    )


def test_settings_of_all_queries_are_changed_and_taken_back(page: Page) -> None:
    page.click("#tab-decisions")
    page.click("summary:text-is('Settings of all queries')")
    page.select_option("select[aria-label='selector']", "thompson")
    page.wait_for_selector(".settings tr:has(th:text-is('selector')) td:text-is('set at run time')")
    page.fill("input[aria-label='margin']", "7")
    page.keyboard.press("Enter")
    page.wait_for_selector(".notice.bad:has-text('margin must be a number from 0 to less than 1')")
    page.wait_for_function("() => document.querySelector('input[aria-label=margin]')?.value === '0.1'")
    page.click("button:text-is('As in the settings file')")
    page.wait_for_selector(".settings tr:has(th:text-is('selector')) td:text-is('default')")


def test_a_killed_nodes_operators_appear_elsewhere_and_it_can_come_back(page: Page) -> None:
    page.click("button.query:has-text('station_load')")
    page.wait_for_selector(".dag-key .chip:has-text('exchange-1')")
    operators = page.locator(".dag-square").count()
    _choose(page, "exchange-1")
    page.wait_for_selector(".inspector:has-text('window aggregate')")
    page.click("text=Kill exchange-1")
    page.wait_for_selector(".inspector p:text('down')")
    page.wait_for_selector(".dag-key .chip:has-text('exchange-1')", state="detached")
    page.wait_for_selector(".dag-group:has(.dag-label:text('window aggregate')) .dag-node:text('exchange-2')")
    page.wait_for_function("n => document.querySelectorAll('.dag-square').length === n", arg=operators)
    _choose(page, "exchange-2")
    page.wait_for_selector(".inspector .rows:has-text('window aggregate')")
    page.click("#tab-changes")
    page.wait_for_selector(".changes li.committed")
    _choose(page, "exchange-1")
    page.wait_for_selector(".inspector p:text-matches('^Comes back with [0-9]+ links[.]')")
    page.click("text=Restore exchange-1")
    page.wait_for_selector("text=Kill exchange-1")
    page.wait_for_selector(".inspector .rows:has-text('gateway-1')")


def test_a_gateway_that_is_killed_comes_back_with_every_link_also_on_a_page_that_did_not_see_it_go(
    page: Page, browser: Browser, demo: RunningDemo
) -> None:
    assert demo.coordinator is not None
    _choose(page, "gateway-1")
    before = page.locator(".inspector .rows button.link").all_inner_texts()
    page.click("text=Kill gateway-1")
    page.wait_for_selector(".inspector p:text('down')")
    other = browser.new_page(viewport={"width": 1366, "height": 768})
    other.set_default_timeout(TIMEOUT_MS)
    other.goto(demo.coordinator.page)
    other.wait_for_selector("button.query")
    _choose(other, "gateway-1")
    other.wait_for_selector(".inspector p:text-matches('^Comes back with [0-9]+ links[.]')")
    other.click("text=Restore gateway-1")
    other.wait_for_selector("text=Kill gateway-1")
    other.close()
    page.wait_for_selector("text=Kill gateway-1")
    trains = [name for name in before if name.startswith("train-")]
    wanted = [name for name in before if name not in trains]
    assert wanted
    assert set(wanted) <= set(page.locator(".inspector .rows button.link").all_inner_texts())


def test_the_page_is_not_well_while_queries_wait(page: Page) -> None:
    page.wait_for_selector("text=all well")
    _choose(page, "control")
    page.click("text=Kill control")
    page.wait_for_selector(".health:has-text('is waiting: ')")
    page.wait_for_selector("button.query:has-text('slow_trains') .reason.bad:visible")
    page.wait_for_selector("button.query:has-text('slow_trains') .condition.bad:text-is('waiting')")
    page.click("text=Restore control")
    page.wait_for_selector("text=all well")
    page.wait_for_selector("button.query .reason.bad:visible", state="detached")


def test_demands_change(page: Page) -> None:
    page.click("button.query:has-text('slow_trains')")
    page.click(".section-head:has-text('Demands') button")
    page.fill("dialog textarea", "latency < 700 s")
    page.click("dialog button.primary")
    page.wait_for_selector(".query-view .demand:has-text('latency < 700000 ms')")


def test_a_link_that_was_used_opens_the_page_again_where_it_was_opened_and_nowhere_else(
    browser: Browser, demo: RunningDemo
) -> None:
    assert demo.coordinator is not None
    link, context = demo.coordinator.page, browser.new_context()
    for _ in range(2):
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.goto(link)
        page.wait_for_selector("button.query")
        page.close()
    context.close()
    page = browser.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    page.goto(link)
    page.wait_for_selector("text=Who are you?")
    page.close()


def test_without_a_token_the_page_asks_for_one(browser: Browser, demo: RunningDemo) -> None:
    assert demo.coordinator is not None
    page = browser.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    page.goto(demo.coordinator.address)
    page.wait_for_selector("text=Who are you?")
    page.fill("#token", demo.coordinator.token)
    page.keyboard.press("Enter")
    page.wait_for_selector("button.query")
    page.close()


def test_a_lost_connection_is_told_and_comes_back(browser: Browser, demo: RunningDemo) -> None:
    assert demo.coordinator is not None
    page = browser.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    answers: list[Callable[[Route], None]] = [lambda route: route.abort()]
    page.route("**/api/v1/stream", lambda route: answers[-1](route))
    page.goto(demo.coordinator.page)
    page.wait_for_selector("text=No answer")
    answers.append(lambda route: route.fulfill(content_type="text/event-stream", body=": ends\n\n"))
    page.wait_for_selector("button.query")
    page.wait_for_selector("text=connection lost, trying again")
    answers.append(lambda route: route.continue_())
    page.wait_for_selector("text=all well")
    page.close()


def test_everything_is_reached_by_keyboard(page: Page) -> None:
    seen: list[str] = []
    for _ in range(16):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "(document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText).slice(0, 20)"
            )
        )
    wanted = ("Colours", "Add query", "Map with", "Find a node", "Zoom in", "Queries", "slow_trains")
    assert [w for w in wanted if not any(text.startswith(w) for text in seen)] == []
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_light_and_dark(browser: Browser, demo: RunningDemo, scheme: str, dark: bool) -> None:
    assert demo.coordinator is not None
    page = browser.new_page(color_scheme="dark" if dark else "light")
    page.set_default_timeout(TIMEOUT_MS)
    page.goto(demo.coordinator.page)
    page.wait_for_selector("button.query")
    colour = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (sum(map(int, colour.removeprefix("rgb(").removesuffix(")").split(","))) < 200) is dark
    page.close()


def test_when_all_is_over_nothing_is_lost_or_double(demo: RunningDemo) -> None:
    demo.end()
    if demo.failure is not None:
        raise demo.failure
    report = demo.demo.report
    assert report.unchecked is None
    assert set(report.checks) == {"slow_trains > alerts", "station_load > dashboard"}
    assert sum(c.expected for c in report.checks.values()) > 0
    assert (report.lost, report.double, report.drained) == (0, 0, True)
