# SPDX-License-Identifier: Apache-2.0
"""The controller's page in a real browser, on real jobs."""
import concurrent.futures
import json
import os
import signal
import time

import pytest
from selenium.webdriver import ActionChains

from browser import Browser
from cluster import free_port, tiny_job, wait_for
from grpc_client import Client

ENDLESS = 1_000_000


@pytest.fixture(scope="module")
def window():
    made = Browser()
    yield made
    made.close()


@pytest.fixture
def browser(window):
    yield window
    window.driver.get("about:blank")
    window.complaints()  # which forgets them


@pytest.fixture
def cluster(start):
    made = start(metrics=f"127.0.0.1:{free_port()}")
    yield made


def keep_screenshot(browser, name):
    """For whoever wants to look: SCREENSHOTS names a folder."""
    if folder := os.environ.get("SCREENSHOTS"):
        browser.driver.save_screenshot(f"{folder}/{name}.png")


def test_a_thousand_jobs_are_listed_found_and_opened(start, browser):
    cluster = start(workers=0, metrics=f"127.0.0.1:{free_port()}")
    client = Client(cluster.address)
    spec = tiny_job("x")
    spec["training"]["optimizer"]["name"] = "OPTIMIZER_NAME_ADAMW"
    spec["parallelism"]["fsdp"]["strategy"] = "STRATEGY_ZERO3"
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda i: client.call("tandem.v1.Jobs", "Submit", {"spec": {**spec, "name": f"job-{i}"}}), range(1000)))
    browser.open(cluster.metrics)
    browser.until("all jobs", lambda: browser.text("#count") == "1000 jobs")
    keep_screenshot(browser, "thousand")
    assert "1000 queued" in browser.text("#summary")
    def all_rows():
        browser.script("document.querySelector('.scroll').scrollTo(0, 1e9)")
        return browser.count("#jobs tbody tr") == 1000
    browser.until("one may scroll to the last", all_rows)
    browser.driver.find_element("css selector", "#find").send_keys("job-77")
    browser.until("those that match", lambda: browser.count("#jobs tbody tr") == 11)  # 77, 770 to 779
    browser.click("#jobs tbody tr")
    browser.until("one job", lambda: browser.text("#state") == "QUEUED")
    cluster.cli("cancel", "job-5")
    browser.driver.back()
    browser.until("the list", lambda: browser.count("#jobs tbody tr") > 0)
    find = browser.driver.find_element("css selector", "#find")
    find.clear()
    find.send_keys("job-5")
    browser.click("button[data-state=CANCELLED]")
    browser.until("the cancelled one", lambda: browser.count("#jobs tbody tr") == 1 and browser.text("#jobs tbody td.state") == "CANCELLED")
    assert browser.complaints() == []
    # Nothing came from anywhere else.
    assert all(name.startswith(f"http://{cluster.metrics}/") for name in browser.script("performance.getEntriesByType('resource').map((entry) => entry.name)"))


def test_running_job_shows_curves_heat_map_and_events(cluster, browser, tmp_path):
    cluster.submit(tiny_job("shown", steps=ENDLESS, directory=tmp_path / "run", every_steps=50))
    wait_for("steps", lambda: cluster.step("shown") > 30)
    browser.open(cluster.metrics, "#/job/shown")
    for chart in ("loss", "tokens/s", "gradient norm"):
        browser.until(chart, lambda: browser.drawn(f"[data-chart='{chart}'] canvas"))
    browser.until("the heat map", lambda: browser.drawn("#heat canvas"))
    first = int(browser.text(".fact b").split(" ")[0].replace(",", ""))
    browser.until("it goes on", lambda: int(browser.text(".fact b").split(" ")[0].replace(",", "")) > first)
    # A click on the map shows the curve of one parameter.
    canvas = browser.driver.find_element("css selector", "#heat canvas")
    browser.script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    canvas.click()
    browser.until("the curve of a parameter", lambda: browser.drawn("#curve canvas"))
    assert ".weight" in browser.text("#curve b")
    # A drag over a curve zooms in.
    loss = browser.driver.find_element("css selector", "[data-chart=loss] canvas")
    browser.script("arguments[0].scrollIntoView({block: 'center'})", loss)
    ActionChains(browser.driver).move_to_element_with_offset(loss, -60, 0).click_and_hold().move_by_offset(100, 0).release().perform()
    browser.until("the zoom", lambda: browser.script("view.zoom !== null && view.reports.length > 0 && Number(view.reports[0].step) >= view.zoom[0]"))
    assert browser.count("#ranks .rank") == 2
    browser.until("an event", lambda: "Ready" in browser.text("#jobevents"))
    cluster.cli("checkpoint", "now", "shown")
    browser.until("what just happened", lambda: "CheckpointDone" in browser.text("#jobevents"))
    keep_screenshot(browser, "job")
    assert browser.complaints() == []


def test_page_reports_and_survives_a_controller_restart(cluster, browser):
    cluster.submit(tiny_job("stays", steps=ENDLESS))
    wait_for("steps", lambda: cluster.step("stays") > 3)
    browser.open(cluster.metrics)
    browser.until("the job", lambda: browser.text("#jobs tbody td.state") == "RUNNING")
    cluster.kill_controller()
    browser.until("it says so", lambda: "No controller has answered" in browser.text("#away"))
    keep_screenshot(browser, "away")
    assert browser.count("#jobs tbody tr") == 1
    cluster.start_controller()
    browser.until("it is back", lambda: browser.text("#away") == "")
    step = int(browser.text("#jobs td.mono").split("/")[0])
    browser.until("steps go on", lambda: int(browser.text("#jobs td.mono").split("/")[0]) > step)
    assert browser.complaints() == []


def test_a_killed_rank_is_shown_with_its_cause(cluster, browser):
    cluster.submit(tiny_job("killed", steps=ENDLESS))
    wait_for("steps", lambda: cluster.step("killed") > 3)
    browser.open(cluster.metrics, "#/job/killed")
    browser.until("it runs", lambda: browser.text("#state") == "RUNNING")
    rank = next(slot["rank"] if "rank" in slot else 0 for slot in cluster.job("killed")["attempts"][-1]["slots"] if slot["worker"] == "w1")
    started = time.monotonic()
    os.kill(cluster.trainers_of("w1")[0], signal.SIGKILL)
    browser.until("the dead rank", lambda: browser.count(f".rank.dead[data-rank='{rank}']") == 1)
    print(f"shown after {time.monotonic() - started:.1f} s")
    browser.until("the end", lambda: browser.text("#state") == "FAILED")
    assert "SIGKILL" in browser.text(".cause") and f"rank {rank} on worker w1" in browser.text(".cause")
    keep_screenshot(browser, "killed")
    assert browser.complaints() == []


def test_nothing_is_wider_than_a_phone(cluster, browser):
    name = "a-name-that-is-as-long-as-names-of-jobs-may-be-0123456789-abcde"
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True})
    try:
        cluster.submit(tiny_job(name, steps=ENDLESS))
        wait_for("steps", lambda: cluster.step(name) > 3)
        for fragment, ready in (("#/", "#jobs tbody tr"), (f"#/job/{name}", "#ranks .rank"), ("#/timeline", "#trace")):
            browser.open(cluster.metrics, fragment)
            browser.until(fragment, lambda: browser.count(ready) > 0)
            assert browser.script("document.documentElement.scrollWidth <= window.innerWidth"), fragment
            keep_screenshot(browser, "phone-" + fragment.replace("#/", "")[:8])
        assert browser.complaints() == []
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_only_a_trace_is_drawn(cluster, browser, tmp_path):
    cluster.submit(tiny_job("traced", steps=ENDLESS))
    wait_for("steps", lambda: cluster.step("traced") > 3)
    trace, other = tmp_path / "trace.json", tmp_path / "other.json"
    cluster.cli("profile", "traced", "--trace", trace)
    other.write_text(json.dumps({"a": 1}))
    browser.open(cluster.metrics, "#/timeline")
    field = browser.driver.find_element("css selector", "#trace")
    field.send_keys(str(other))
    browser.until("it says so", lambda: "other.json is not a trace" in browser.text("main"))
    field.send_keys(str(trace))
    browser.until("the timeline", lambda: browser.drawn("#timeline canvas"))
    assert browser.script("view.spans.length > 20 && view.lanes.length >= 2")
    keep_screenshot(browser, "timeline")
    assert browser.complaints() == []


def press_cancel(browser, sure=False):
    """Presses the button once, or until it has asked and was told. What it says then. In one step: after 5 s, which may
    pass between two, the button asks no more, and the page replaces it when the job's state changes."""
    return browser.script("""((sure) => { const button = document.querySelector('#cancel');
        if (sure && !button.classList.contains('on')) button.click();
        button.click(); return button.textContent; }).apply(null, arguments)""", sure)


def sign_in(cluster, browser):
    made = cluster.cli("sign-in")
    address = made.stdout.strip()
    assert address.startswith(f"http://{cluster.metrics}/#/sign-in/"), made.stdout
    browser.driver.get("about:blank")
    browser.driver.get(address)
    browser.until("signed in", lambda: browser.text("#who").startswith("local"))
    assert "sign-in" not in browser.script("location.href"), "the code is not kept in the history"
    return address


def test_without_signing_in_nothing_can_be_changed(cluster, browser):
    cluster.submit(tiny_job("watched", steps=ENDLESS))
    wait_for("steps", lambda: cluster.step("watched") > 3)
    browser.open(cluster.metrics, "#/job/watched")
    browser.until("it runs", lambda: browser.text("#state") == "RUNNING")
    assert browser.text("#who") == "read-only" and browser.count("#actions button") == 0
    browser.open(cluster.metrics, "#/sign-in/" + 32 * "0")
    browser.until("it says why not", lambda: "used before" in browser.text("#who"))
    assert browser.count("#actions button") == 0
    assert all("401" in line for line in browser.complaints())


def test_signed_in_user_saves_profiles_cancels_signs_out(cluster, browser, tmp_path):
    cluster.submit(tiny_job("mine", steps=ENDLESS, directory=tmp_path / "run"))
    wait_for("steps", lambda: cluster.step("mine") > 3)
    address = sign_in(cluster, browser)
    browser.driver.execute_script("location.hash = '#/job/mine'")
    browser.until("what one may do", lambda: browser.count("#actions button") == 4)
    keep_screenshot(browser, "signed-in")
    browser.click("#checkpoint")
    browser.until("a checkpoint", lambda: "CheckpointDone" in browser.text("#jobevents"))
    # The steps that are recorded now are drawn, without a file.
    browser.click("#profile")
    browser.until("the timeline", lambda: browser.count("#timeline") == 1 and browser.drawn("#timeline canvas"))
    assert browser.script("view.spans.length > 20 && view.lanes.length >= 2")
    assert "mine" in browser.text("main")
    keep_screenshot(browser, "profiled")
    browser.driver.back()
    browser.until("the job again", lambda: browser.count("#cancel") == 1)
    # Cancelling asks once more.
    assert press_cancel(browser) == "really cancel?"
    assert cluster.state("mine") == "RUNNING"
    press_cancel(browser, sure=True)
    browser.until("it ends", lambda: browser.text("#state") == "CANCELLED")
    assert browser.count("#actions button") == 0
    # A reload keeps the session; the code has been used; signing out ends it for good.
    secret = browser.script("sessionStorage.getItem('session')")
    browser.driver.refresh()
    browser.until("still signed in", lambda: browser.text("#who").startswith("local"))
    # As does opening the used address once more.
    browser.driver.get("about:blank")
    browser.driver.get(address)
    browser.until("the code was used", lambda: browser.text("#who").startswith("local") and "used before" in browser.text("#who"))
    assert browser.script("sessionStorage.getItem('session')") == secret
    assert all("401" in line for line in browser.complaints())
    browser.click("#signout")
    browser.until("signed out", lambda: browser.text("#who") == "read-only")
    assert browser.script("sessionStorage.getItem('session')") is None
    assert browser.complaints() == []
    browser.driver.get("about:blank")
    browser.driver.get(address)
    browser.until("the code was used", lambda: "used before" in browser.text("#who"))
    assert browser.script("""fetch('/api/GetServerInfo', {headers: {Authorization: 'Bearer ' + arguments[0]}}).then((answer) => answer.status)""", secret) == 401
    log = (cluster.folder / "controller.log").read_text()
    assert '"who":"local","from":"page 127.0.0.1:' in log and '"method":"tandem.v1.Jobs/Cancel"' in log
    assert secret not in log and address.rsplit("/", 1)[1] not in log


def test_session_ends_visibly_with_the_controller(cluster, browser):
    cluster.submit(tiny_job("kept", steps=ENDLESS))
    wait_for("steps", lambda: cluster.step("kept") > 3)
    sign_in(cluster, browser)
    browser.driver.execute_script("location.hash = '#/job/kept'")
    browser.until("what one may do", lambda: browser.count("#cancel") == 1)
    cluster.kill_controller()
    cluster.start_controller()
    browser.until("it is back", lambda: browser.text("#away") == "")
    press_cancel(browser, sure=True)
    browser.until("it says so", lambda: "sign in again" in browser.text("#who"))
    assert browser.count("#cancel") == 0 and cluster.state("kept") == "RUNNING"


def test_slow_answers_show_every_event_once(cluster, browser):
    cluster.submit(tiny_job("once", steps=ENDLESS))
    wait_for("steps", lambda: cluster.step("once") > 3)
    browser.open(cluster.metrics)
    browser.until("the job", lambda: browser.count("#jobs tbody tr") == 1)
    browser.driver.execute_script("""
        const real = api;
        window.answered = 0;
        api = (...of) => new Promise((done) => setTimeout(done, of[0] === 'ListEvents' ? 1500 : 0)).then(() => real(...of))
            .finally(() => { if (of[0] === 'ListEvents' && of[1].job) window.answered += 1; });
    """)
    browser.driver.execute_script("location.hash = '#/job/once'")
    browser.until("its events", lambda: "Ready" in browser.text("#jobevents"))
    browser.until("it has asked several times", lambda: browser.script("window.answered") >= 4)
    rows = browser.script("[...document.querySelectorAll('#jobevents tr')].map((row) => row.innerText)")
    assert len(rows) == len(set(rows)), rows
