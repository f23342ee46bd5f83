# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, Debian's, for the tests of the page."""
import contextlib
import shutil

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from cluster import wait_for


class Browser:
    """One window on the page of a controller."""

    def __init__(self, width=1300, height=900):
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--window-size={width},{height}"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))

    def open(self, address, fragment="#/"):
        self.address = address
        self.driver.get(f"http://{address}/{fragment}")

    def script(self, text, *arguments):
        return self.driver.execute_script("return " + text, *arguments)

    def text(self, selector):
        # In one step: the page replaces elements while it is looked at.
        return self.script("((node) => node?.checkVisibility() ? node.innerText.trim() : '')(document.querySelector(arguments[0]))", selector)

    def count(self, selector):
        return self.script("document.querySelectorAll(arguments[0]).length", selector)

    def click(self, selector):
        def clicked():
            with contextlib.suppress(StaleElementReferenceException):  # the page has replaced it meanwhile
                self.driver.find_element(By.CSS_SELECTOR, selector).click()
                return True

        wait_for(f"a click on {selector}", clicked)

    def until(self, what, condition, seconds=120):
        try:
            return wait_for(what, condition, seconds)
        except AssertionError:
            raise AssertionError(f"{what}; the page: {self.text('body')[:2000]}; its log: {self.complaints()}") from None

    def complaints(self):
        """Errors of its script, and answers that were no success; not that nobody answers, or dies before it does."""
        nobody = ("ERR_CONNECTION", "ERR_EMPTY_RESPONSE", "ERR_CONTENT_LENGTH_MISMATCH", "ERR_INCOMPLETE")
        log = self.driver.get_log("browser")
        return [entry["message"] for entry in log if entry["level"] == "SEVERE" and not any(word in entry["message"] for word in nobody)]

    def drawn(self, selector):
        """Whether a canvas has more than one colour."""
        return self.script("""(() => { const canvas = document.querySelector(arguments[0]); if (!canvas || !canvas.width || !canvas.height) return false;
            const data = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
            return data.some((pixel) => pixel !== data[0]); }).apply(null, arguments)""", selector)

    def close(self):
        self.driver.quit()
