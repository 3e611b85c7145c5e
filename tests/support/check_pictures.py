"""What `troupe` leaves for people: drawings, the suite's page, a tuned settings file.

    check_pictures.py TROUPE (plot NAMES | no-gnuplot | suite SECTIONS | tune) [-- ARGUMENTS...]

NAMES and SECTIONS are divided by commas. Exits with 77, and says so, where gnuplot is needed and not installed.
"""

import html.parser
import json
import os
import pathlib
import shutil
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


def need_gnuplot():
    if shutil.which("gnuplot") is None:
        print("skipped: there is no gnuplot in PATH (package gnuplot-nox)")
        sys.exit(77)


def texts(svg):
    return ["".join(one.itertext()).strip() for one in svg.iter(SVG + "text")]


class Page(html.parser.HTMLParser):
    """Elements must be closed in order; nothing may be taken from elsewhere."""

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
            fail(f"</{tag}> closes what is not open")

    def handle_data(self, data):
        self.text.append(data)


def check_plot(troupe, names, arguments):
    need_gnuplot()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "an 'odd' $(name) & more.svg"
        done = run([troupe, *arguments, "--plot", str(path)])
        if done.returncode != 0 or os.listdir(folder) != [path.name]:
            fail(f"exit status {done.returncode}, files left: {os.listdir(folder)}")
        said = texts(xml.etree.ElementTree.parse(path).getroot())
        for name in names.split(","):
            if not any(name in one for one in said):
                fail(f"'{name}' is not in the drawing: {said}")
        if not any("troupe 0" in one for one in said) or not any(" cores, " in one for one in said):
            fail(f"the small print does not say with what and where: {said}")


def check_no_gnuplot(troupe, arguments):
    with tempfile.TemporaryDirectory() as folder:
        report, drawing = pathlib.Path(folder) / "a.json", pathlib.Path(folder) / "a.svg"
        words = [troupe, *arguments, "--json", str(report), "--plot", str(drawing)]
        done = run(words, {**os.environ, "PATH": folder})
        if done.returncode != 1 or "apt-get install gnuplot-nox" not in done.stderr:
            fail(f"exit status {done.returncode}, and the package is not named")
        if not json.loads(report.read_text())["rows"] or "# " not in done.stdout:
            fail("the figures are lost")
        script = pathlib.Path(folder) / "a.svg.gp"
        if drawing.exists() or "set terminal svg" not in script.read_text():
            fail("the script is not there")


def check_suite(troupe, sections, arguments):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "a suite"
        names = sections.split(",")
        done = run([troupe, *arguments, "--only", sections, "--out", str(out)])
        if done.returncode != 0:
            fail(f"exit status {done.returncode}")
        if sorted(os.listdir(out)) != sorted(["report.html"] + [f"{name}.json" for name in names]):
            fail(f"files left: {os.listdir(out)}")
        page = Page()
        page.feed((out / "report.html").read_text())
        page.close()
        if page.open:
            fail(f"not closed: {page.open}")
        if sorted(page.sections) != sorted(["summary", "circumstances", *names]):
            fail(f"sections: {page.sections}")
        if len(set(page.ids)) != len(page.ids):
            fail("two elements have one id")
        text = "".join(page.text)
        if "of the mock" not in text:
            fail("the page does not say that its figures are of the mock")
        for name in names:
            report = json.loads((out / f"{name}.json").read_text())
            if report["bench"] != name or f"troupe bench {name} " not in text:
                fail(f"{name} is not there with the command to repeat it")
            if len(report.get("rows", [])) > page.rows:
                fail("rows are missing")
        if shutil.which("gnuplot") is not None and page.drawings == 0:
            fail("there is no drawing")


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
            fail("the file does not say that it is of the mock")
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
    {"plot": check_plot, "no-gnuplot": check_no_gnuplot, "suite": check_suite, "tune": check_tune}[what](
        troupe, *own, arguments
    )


if __name__ == "__main__":
    main()
