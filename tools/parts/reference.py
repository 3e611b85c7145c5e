"""Generates the pages of docs/reference from the headers and the compiled example: path -> text."""
import re

from .declarations import parse
from .snippets import NoSuchSnippet, snippet

FOLDER = "docs/reference"
OPERATIONS = "collectives/operation/operation.hpp"
TYPES = ("collectives/operation/operation.hpp", "collectives/operation/dtype.hpp", "collectives/operation/reduction.hpp",
         "collectives/operation/request.hpp", "device/error.hpp")
EXAMPLE = "examples/02_every_operation.cpp"
SECTIONS = ("Shapes", "In place", "Units", "Order", "Lifetime", "Errors", "Threads", "Invariants", "Source")
# Types that pages name besides the operations, in the order in which they are explained.
EXPLAINED = ("operand", "partition", "dtype", "reduction", "factor", "request_options", "rank_request",
             "world_request", "errc", "effect")


class BrokenSource(Exception):
    """A source of the pages is incomplete; the text says what is missing."""


def prose(text):
    """Returns a doc comment as Markdown, with each \\p argument as code."""
    return re.sub(r"\\p (\w+(?:\.\w+)*(?:\[\w+\])*)", r"`\1`", text)


def cell(text):
    return prose(text).replace("|", "\\|")


def linked(type_name, operations):
    """Returns a field's type as Markdown, linked to its explanation."""
    bare = re.sub(r"\btroupe::", "", type_name)

    def link(name):
        if name in operations:
            return f"[{name}]({name}.md)"
        return f"[{name}](types.md#{name})" if name in EXPLAINED or name == "operation" else name

    if re.fullmatch(r"\w+", bare):
        return link(bare) if bare in operations or bare in EXPLAINED or bare == "operation" else f"`{bare}`"
    inner = re.fullmatch(r"std::vector<(\w+)>", bare)
    if inner and link(inner[1]) != inner[1]:
        return f"`std::vector` of {link(inner[1])}"
    return f"`{bare}`"


def fields_table(members, operations):
    rows = ["| field | type | default | meaning |", "| --- | --- | --- | --- |"]
    for one in members:
        default = f"`{one.default}`" if one.default else ""
        rows.append(f"| `{one.name}` | {linked(one.type, operations)} | {default} | {cell(one.doc)} |")
    return rows


def said(doc, skip=()):
    for label in SECTIONS:
        if label in doc.sections and label not in skip:
            yield f"**{label}:** {prose(doc.sections[label])}"
            yield ""


def header(root, *sources):
    return f"<!-- Made by tools/check-reference --fix from {', '.join(sources)}: change these, not this page. -->"


def operation_page(root, one, operations):
    lines = [header(root, OPERATIONS, EXAMPLE), f"# {one.name}", "", prose(one.doc.effect), ""]
    lines += said(one.doc)
    names = [member.name for member in one.members]
    if one.members:
        lines += ["## Fields", "", *fields_table(one.members, operations), ""]
    else:
        lines += ["It has no fields.", ""]
    if "type" in names:
        lines += ["## Dtypes and reductions" if "op" in names else "## Dtypes", "",
                  "Every [dtype](types.md#dtype)" + (" with every [reduction](types.md#reduction)." if "op" in names
                                                     else ".")
                  + f" If the device or its library cannot run {'a combination' if 'op' in names else 'a dtype'}, the "
                    "request is refused with `unsupported` and the reason.", ""]
    lines += ["[The first page](README.md) has the rules for all operations (units, memory, errors).", "",
              "## Example", "", *example(root, one.name)]
    return "\n".join(lines) + "\n"


def example(root, region):
    what = f"{EXAMPLE}#{region}"
    try:
        code = snippet(root, what)
    except NoSuchSnippet as why:
        raise BrokenSource(f"{EXAMPLE} has no example of {region}: {why}") from why
    path = f"../../{EXAMPLE}"
    return [f"From [{EXAMPLE}]({path}), whose results the tests verify; its helpers are on "
            "[the first page](README.md#the-examples)." if region != "helpers" else
            f"Each page's example is a part of [{EXAMPLE}]({path}), which the tests compile and run. All examples use:",
            "", f"<!-- snippet: {what} -->", "```cpp", code.rstrip("\n"), "```", "<!-- end -->"]


def index_page(root, common, operations):
    lines = [header(root, OPERATIONS, EXAMPLE), "# Operations", "",
             "The operations of a world, one page each. n is the number of the world's ranks.", "",
             "| operation | effect |", "| --- | --- |"]
    for one in operations.values():
        first_sentence = re.split(r"(?<=\.)\s", one.doc.effect)[0]
        lines.append(f"| [{one.name}]({one.name}.md) | {cell(first_sentence)} |")
    lines += ["", "## Rules for all operations", "", prose(common.doc.effect), ""]
    lines += said(common.doc)
    lines += ["[types.md](types.md) documents the types of their fields, the [dtypes](types.md#dtype), "
              "[reductions](types.md#reduction) and [error codes](types.md#errc).", "",
              "## The examples", "", *example(root, "helpers")]
    return "\n".join(lines) + "\n"


def types_page(root, declared, common, operations):
    lines = [header(root, *TYPES), "# Types of operations", ""]
    for name in EXPLAINED:
        one = declared.get(name)
        if one is None:
            raise BrokenSource(f"none of {', '.join(TYPES)} declares {name}")
        lines += [f"## {name}", "", prose(one.doc.effect), "", *said(one.doc)]
        if one.kind == "struct":
            lines += [*fields_table(one.members, operations), ""]
        elif any(member.doc for member in one.members):
            lines += ["| value | meaning |", "| --- | --- |"]
            lines += [f"| `{member.name}` | {cell(member.doc)} |" for member in one.members] + [""]
        else:
            lines += ["Values: " + ", ".join(f"`{member.name}`" for member in one.members) + ".", ""]
    lines += ["## operation", "", prose(common.doc.effect), "",
              "Any of " + ", ".join(f"[{name}]({name}.md)" for name in operations) + ".", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def pages(root):
    declared = {}
    for header_path in TYPES:
        if not (root / header_path).is_file():
            raise BrokenSource(f"{header_path} does not exist")
        declared.update(parse((root / header_path).read_text(encoding="utf-8")))
    common = declared.get("operation")
    alternatives = re.fullmatch(r"std::variant<(.*)>", common.target) if common else None
    if not alternatives:
        raise BrokenSource(f"{OPERATIONS} declares no variant called operation")
    operations = {}
    for name in (part.strip() for part in alternatives[1].split(",")):
        if name not in declared or not declared[name].doc.effect:
            raise BrokenSource(f"{OPERATIONS} does not document the operation {name}")
        operations[name] = declared[name]
    made = {f"{name}.md": operation_page(root, one, operations) for name, one in operations.items()}
    made["README.md"] = index_page(root, common, operations)
    made["types.md"] = types_page(root, declared, common, operations)
    return made
