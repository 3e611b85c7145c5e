"""Prepares the documentation site's input for Doxygen, public headers and pages, and collects Doxygen's warnings.

Public headers are those that cmake/public_headers.cmake lists. They are shown under the names by which they are included. Pages
are the Markdown files of the repository; headings get the ids that links into them name, and links between
files become Doxygen's references.
"""
import pathlib
import re
import shutil
import subprocess

from .public_headers import KIT, UMBRELLAS, NoList, includes_of, listed, name_of, path_of

BY_NAME = (KIT, "runtime/interop/", "runtime/metrics.hpp", "processes/controller.hpp")
FENCE = re.compile(r"^[ \t]*(```|~~~)")
HEADING = re.compile(r"^(#{1,6})[ \t]+(.*?)[ \t]*#*$")
LINK = re.compile(r"(!?)\[((?:[^\[\]`]|`[^`]*`|\[[^\[\]]*\])*)\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)?)(?:[ \t]+\"[^\"]*\")?\)")
CODE = re.compile(r"(`+)(?:.(?!\1))*.?\1")


def public_headers(root):
    """Returns the paths of the installed headers, relative to the root, with the names by which they are included."""
    return {path: name_of(path) for path in sorted(listed(root))}


def interface_headers(root):
    """Returns the public headers that users include by name: the umbrellas' headers, the testing kit, and others."""
    named = {path_of(include) for umbrella in UMBRELLAS if (root / umbrella).exists() for include in includes_of(root, umbrella)}
    return {path for path in public_headers(root) if path in named or path in UMBRELLAS or path.startswith(BY_NAME)}


def documents(root):
    """Returns the Markdown files that belong to the documentation, relative to the root."""
    files = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("examples/**/*.md")]
    return sorted(file.relative_to(root).as_posix() for file in files)


def lines_outside_code(text):
    """Yields (number from 1, line, whether it is outside fenced code) for all lines."""
    inside = None
    for number, line in enumerate(text.split("\n"), 1):
        fence = FENCE.match(line)
        if fence and inside is None:
            inside = fence[1]
            yield number, line, False
        elif fence and line.strip() == inside:
            inside = None
            yield number, line, False
        else:
            yield number, line, inside is None


def slug_of(heading, seen):
    """Returns the anchor of a heading, as GitHub generates it."""
    text = LINK.sub(lambda link: link[2], heading)
    slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
    count = seen.get(slug, 0)
    seen[slug] = count + 1
    return f"{slug}-{count}" if count else slug


def anchors(text):
    """Returns the anchors of a Markdown document."""
    seen, found = {}, set()
    for _, line, outside in lines_outside_code(text):
        heading = HEADING.match(line) if outside else None
        if heading:
            found.add(slug_of(heading[2], seen))
    return found | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))


def links(text):
    """Yields (line, target) for every link and image of a Markdown document."""
    for number, line, outside in lines_outside_code(text):
        if not outside or line.startswith("    "):
            continue
        bare = CODE.sub(lambda code: "`" + " " * (len(code[0]) - 2) + "`", line)
        for link in LINK.finditer(bare):
            yield number, link[3]


def page_id(path):
    if path == "docs/README.md":
        return "index"
    return "page_" + re.sub(r"\W", "_", path.removeprefix("docs/").removesuffix(".md"))


def section_id(path, slug):
    return f"{page_id(path)}__{re.sub(r'[^a-z0-9]', '_', slug)}"


def resolve(path, target):
    """Returns the target of a relative link in \\p path: a path relative to the root, and the anchor."""
    file, _, anchor = target.partition("#")
    if not file:
        return path, anchor
    parts = []
    for part in (pathlib.PurePosixPath(path).parent / file).parts:
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts), anchor


class Site:
    """Prepares Doxygen's input below \\p work, and runs Doxygen on it."""

    def __init__(self, root, work):
        self.root = root
        self.work = work
        self.input = work / "input"
        self.headers = public_headers(root)
        self.pages = documents(root)
        self.images = set()

    def prepare(self, with_pages=True):
        shutil.rmtree(self.input, ignore_errors=True)
        for path, name in self.headers.items():
            text = (self.root / path).read_text(encoding="utf-8")
            # The first block describes the file. Without \file, Doxygen would assign it to the next declaration.
            self.write(name, f"/// \\file\n{text}" if text.startswith("///") else f"\n{text}")
        if with_pages:
            for path in self.pages:
                self.write(f"pages/{path}", self.page(path))

    def write(self, name, text):
        file = self.input / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def page(self, path):
        text = (self.root / path).read_text(encoding="utf-8")
        seen, made, first = {}, [], True
        for _, line, outside in lines_outside_code(text):
            heading = HEADING.match(line) if outside else None
            if heading:
                slug = slug_of(heading[2], seen)
                title = self.linked(path, heading[2]).replace("`", "")
                own = page_id(path) if first else section_id(path, slug)
                line = f"{heading[1]} {title}" + ("" if own == "index" else f" {{#{own}}}")
                first = False
            elif outside and not line.startswith("    "):
                line = self.linked(path, line)
            made.append(re.sub(r"^```sh$|^```console$|^```text$", "```{.unparsed}", line) if not outside else line)
        return "\n".join(made)

    def linked(self, path, line):
        codes = []

        def hide(code):
            codes.append(code[0])
            return f"\x01{len(codes) - 1}\x02"

        def show(text):
            return re.sub("\x01(\\d+)\x02", lambda mark: codes[int(mark[1])], text)

        def link(one):
            image, text, target = one[1], one[2], show(one[3])
            if re.match(r"[a-z]+:", target):
                return one[0]
            to, anchor = resolve(path, target)
            if image:
                self.images.add(to)
                return f'<img src="{pathlib.PurePosixPath(to).name}" alt="{text}"/>'
            if to in self.pages:
                return f"[{text}](@ref {section_id(to, anchor) if anchor and anchor != self.title_of(to) else page_id(to)})"
            if to in self.headers:
                return f"[{text}](@ref {self.headers[to]})"
            return text  # a file of the repository that is not a page
        return show(LINK.sub(link, CODE.sub(hide, line)))

    def title_of(self, path):
        """Returns the anchor of a page's own title, which leads to the page."""
        for _, line, outside in lines_outside_code((self.root / path).read_text(encoding="utf-8")):
            heading = HEADING.match(line) if outside else None
            if heading:
                return slug_of(heading[2], {})
        return ""

    def run(self, settings):
        """Runs Doxygen with docs/site/Doxyfile and \\p settings; returns its warnings as (file, line, text)."""
        configuration = f"@INCLUDE = {self.root}/docs/site/Doxyfile\n"
        folder = self.root / "docs/site"
        for name, value in {"INPUT": self.input, "STRIP_FROM_PATH": f"{self.input}/pages {self.input}",
                            "STRIP_FROM_INC_PATH": self.input, "OUTPUT_DIRECTORY": self.work,
                            "HTML_HEADER": folder / "header.html", "HTML_FOOTER": folder / "footer.html",
                            "HTML_EXTRA_STYLESHEET": folder / "site.css", "PROJECT_NUMBER": self.version(),
                            "USE_MDFILE_AS_MAINPAGE": self.input / "pages/docs/README.md",
                            **settings}.items():
            configuration += f"{name} = {value}\n"
        (self.work / "Doxyfile").write_text(configuration, encoding="utf-8")
        done = subprocess.run(["doxygen", str(self.work / "Doxyfile")], capture_output=True, text=True, check=False)
        warnings = [self.warning(line) for line in done.stderr.splitlines() if "warning:" in line or "error:" in line]
        if done.returncode != 0 and not warnings:
            warnings.append(("doxygen", 0, done.stderr.strip() or f"ended with status {done.returncode}"))
        return warnings

    def copy_images(self):
        """Copies the images, because Doxygen does not copy those that HTML tags include."""
        for image in sorted(self.images):
            shutil.copy(self.root / image, self.work / "html")

    def version(self):
        found = re.search(r"project\(troupe VERSION ([\d.]+)", (self.root / "CMakeLists.txt").read_text(encoding="utf-8"))
        return found[1] if found else ""

    def warning(self, line):
        place = re.match(r"(.*?):(\d+): (?:warning|error): (.*)", line)
        if not place:
            return "doxygen", 0, line
        return *self.source_of(pathlib.Path(place[1]), int(place[2])), place[3]

    def source_of(self, file, line):
        """Returns the file of the tree from which a prepared file was made, and the line there."""
        if not file.is_relative_to(self.input):
            return str(file), line
        name = file.relative_to(self.input).as_posix()
        if name.startswith("pages/"):
            return name.removeprefix("pages/"), line
        for path, include in self.headers.items():
            if include == name:
                return path, max(line - 1, 1)
        return name, line
