"""Checks output of `troupe` that is meant for people: plots, the suite's page, a tuned settings file.

    check_pictures.py TROUPE (plot NAMES | no-matplotlib | suite SECTIONS | tune) [-- ARGUMENTS...]

NAMES and SECTIONS are separated by commas. If matplotlib is needed and not installed, prints that and exits with 77.
"""

import html.parser
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "link", "br", "hr", "img"}


def fail(why):
    sys.exit(f"FAILED: {why}")


def run(words, environment=None):
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=110, check=False)
    print(done.stdout, done.stderr, sep="\n")
    return done


def can_draw(troupe):
    return subprocess.run([troupe, "plot", "--check"], check=False).returncode == 0


def texts(svg):
    return ["".join(one.itertext()).strip() for one in svg.iter(SVG + "text")]


class Page(html.parser.HTMLParser):
    """Parses the page. Fails if elements are not closed in order or the page refers to anything outside its folder."""

    def __init__(self):
        super().__init__()
        self.open, self.sections, self.drawings, self.rows, self.text = [], [], 0, 0, []
        self.ids = []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag in ("script", "link", "img", "iframe"):
            fail(f"the page has an element {tag}")
        if tag == "section":
            self.sections.append(attributes["id"])
        self.drawings += tag == "svg"
        self.rows += tag == "tr"
        for name in ("href", "src", "xlink:href"):
            value = attributes.get(name, "#")
            if not value.startswith("#") and not value.endswith(".json"):
                fail(f"the page refers to {value}")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            fail(f"</{tag}> has no start tag")

    def handle_data(self, data):
        self.text.append(data)


def check_names(drawing, names):
    """Returns the texts of a drawing, among which must be all NAMES."""
    said = texts(xml.etree.ElementTree.parse(drawing).getroot())
    for name in names.split(","):
        if not any(name in one for one in said):
            fail(f"'{name}' is not in {drawing.name}: {said}")
    return said


def check_plot(troupe, names, arguments):
    if not can_draw(troupe):
        print("skipped: troupe plot cannot draw here (package python3-matplotlib)")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "an 'odd' $(name) & more.svg"
        done = run([troupe, *arguments, "--plot", str(path)])
        if done.returncode != 0 or os.listdir(folder) != [path.name]:
            fail(f"exit status {done.returncode}, files left: {os.listdir(folder)}")
        said = check_names(path, names)
        if not any("troupe 0" in one for one in said) or not any(" cores, " in one for one in said):
            fail(f"the small print does not name troupe's version and the machine: {said}")
        report, again = pathlib.Path(folder) / "a.json", pathlib.Path(folder) / "again.svg"
        run([troupe, *arguments, "--json", str(report)])
        done = run([troupe, "plot", str(report), str(again)])
        if done.returncode != 0:
            fail(f"troupe plot does not draw the report: exit status {done.returncode}")
        check_names(again, names)


def check_no_matplotlib(troupe, arguments):
    with tempfile.TemporaryDirectory() as folder:
        report, drawing = pathlib.Path(folder) / "a.json", pathlib.Path(folder) / "a.svg"
        words = [troupe, *arguments, "--json", str(report), "--plot", str(drawing)]
        fake = pathlib.Path(folder) / "modules" / "matplotlib.py"  # Python finds it before an installed matplotlib
        fake.parent.mkdir()
        fake.write_text("raise ImportError('not here')")
        environment = {**os.environ, "PYTHONPATH": str(fake.parent), "PYTHONDONTWRITEBYTECODE": "1"}
        done = run(words, environment)
        if done.returncode != 1 or done.stderr.count("apt-get install python3-matplotlib") != 2:
            fail(f"exit status {done.returncode}, and the package is not named")
        if not json.loads(report.read_text())["rows"] or "# " not in done.stdout:
            fail("the figures are lost")
        kept = pathlib.Path(folder) / "a.svg.json"
        if drawing.exists() or kept.read_text() != report.read_text():
            fail("the report is not kept beside the plot's file")
        out = pathlib.Path(folder) / "suite"
        done = run([troupe, "bench", "suite", "--quick", "--backend", "mock", "--only", "rate", "--out", str(out)], environment)
        page = (out / "report.html").read_text()
        if done.returncode != 0 or "apt-get install python3-matplotlib" not in page or "<svg" in page:
            fail(f"exit status {done.returncode} of the suite, or its page does not say what is missing")


def check_suite(troupe, sections, arguments):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "a suite"
        names = sections.split(",")
        done = run([troupe, *arguments, "--only", sections, "--out", str(out)])
        if done.returncode != 0:
            fail(f"exit status {done.returncode}")
        if sorted(os.listdir(out)) != sorted(["report.html", "suite.json"] + [f"{name}.json" for name in names]):
            fail(f"files left: {os.listdir(out)}")
        page = Page()
        page.feed((out / "report.html").read_text())
        page.close()
        if page.open:
            fail(f"not closed: {page.open}")
        if sorted(page.sections) != sorted(["summary", "circumstances", *names]):
            fail(f"sections: {page.sections}")
        if len(set(page.ids)) != len(page.ids):
            fail("two elements have the same id")
        text = "".join(page.text)
        if "of the mock" not in text:
            fail("the page does not say that its figures are of the mock")
        for name in names:
            report = json.loads((out / f"{name}.json").read_text())
            if report["bench"] != name or f"troupe bench {name} " not in text:
                fail(f"the page does not show {name} with the command that repeats it")
            if len(report.get("rows", [])) > page.rows:
                fail("rows are missing")
        if can_draw(troupe) and page.drawings == 0:
            fail("the page has no drawing")
        (out / "report.html").unlink()
        if run([troupe, "report", str(out)]).returncode != 0 or not (out / "report.html").exists():
            fail("troupe report does not write the page again")


def check_tune(troupe, arguments):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tuned.json"
        done = run([troupe, "tune", *arguments, "--out", str(path)])
        if done.returncode != 0:
            fail(f"exit status {done.returncode}")
        for word in ("default", "ratio", "noise"):
            if word not in done.stdout:
                fail(f"the table has no '{word}'")
        print(path.read_text())
        if "On the mock" not in path.read_text():
            fail("the file does not say that it was measured on the mock")
        loaded = run([troupe, "config", "--config", str(path)])
        if loaded.returncode != 0:
            fail("the file does not load")
        written = [line for line in path.read_text().splitlines() if line.startswith('  "')]
        taken = [line for line in loaded.stdout.splitlines() if f"file {path}:" in line]
        if len(written) != len(taken):
            fail(f"{len(written)} settings were written and {len(taken)} taken")


def main():
    troupe, what, *rest = sys.argv[1:]
    own, arguments = (rest[: rest.index("--")], rest[rest.index("--") + 1 :]) if "--" in rest else (rest, [])
    {"plot": check_plot, "no-matplotlib": check_no_matplotlib, "suite": check_suite, "tune": check_tune}[what](
        troupe, *own, arguments
    )


if __name__ == "__main__":
    main()
