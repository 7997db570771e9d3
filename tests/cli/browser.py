"""Opens files in headless Chromium and queries them over a pipe, with Chromium's DevTools protocol."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One Chromium with one page. Records what the page logs, throws and requests."""

    def __init__(self):
        if not CHROMIUM:
            raise unittest.SkipTest("there is no chromium here (tools/setup.sh pages)")
        self.profile = tempfile.TemporaryDirectory()
        read_end, self.commands = os.pipe()
        self.answers, write_end = os.pipe()
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", f'exec "$@" 3<&{read_end} 4>&{write_end}', "sh", CHROMIUM]
            + [
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--disable-dev-shm-usage",
                "--remote-debugging-pipe",
            ]
            + [
                "--no-first-run",
                "--disable-background-networking",
                f"--user-data-dir={self.profile.name}",
                "about:blank",
            ],
            pass_fds=(read_end, write_end),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_end)
        os.close(write_end)
        self.buffer, self.calls, self.session = b"", 0, None
        self.problems, self.requests, self.loads = [], [], 0
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(f"{domain}.enable")

    def close(self):
        os.close(self.commands)  # Chromium ends when this pipe closes
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.answers)
        self.profile.cleanup()

    def call(self, method, **parameters):
        self.calls += 1
        message = {"id": self.calls, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next_message()
            if answer.get("id") == self.calls:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def next_message(self):
        while b"\0" not in self.buffer:
            more = os.read(self.answers, 1 << 16)
            if not more:
                raise RuntimeError("chromium ended")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(text)
        self.note(message.get("method"), message.get("params", {}))
        return message

    def note(self, method, reply):
        if method == "Page.loadEventFired":
            self.loads += 1
        elif method == "Network.requestWillBeSent":
            self.requests.append(reply["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = reply["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and reply["type"] in {"error", "warning", "assert"}:
            self.problems.append(str(reply["args"]))
        elif method == "Log.entryAdded" and reply["entry"]["level"] in {"error", "warning"}:
            self.problems.append(reply["entry"]["text"])

    def open(self, path, width=1280, dark=False):
        """Opens the page as a user sees it, and waits until it is loaded."""
        self.problems, self.requests = [], []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        loads = self.loads
        self.call("Page.navigate", url=path.resolve().as_uri())
        while self.loads == loads:
            self.next_message()
        self.ask("new Promise((done) => requestAnimationFrame(() => done(0)))")

    def ask(self, expression):
        """The value of a JavaScript expression; waits for promises."""
        reply = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in reply:
            raise RuntimeError(reply["exceptionDetails"].get("exception", {}).get("description", reply))
        return reply["result"].get("value")

    def press(self, key):
        code = {"Enter": 13, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}[key]
        event = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        if key == "Enter":
            event["text"] = "\r"
        self.call("Input.dispatchKeyEvent", type="keyDown", **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def screenshot(self, whole=True):
        """A screenshot: PNG in base64."""
        return self.call("Page.captureScreenshot", captureBeyondViewport=whole, **self.clip(whole))["data"]

    def clip(self, whole):
        if not whole:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
