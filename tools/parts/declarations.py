"""Reads the declarations of a header in this project's style: doc comments, structs with their fields, enumerations.

This is not a C++ parser: each declaration begins on a line of its own, a semicolon ends a member, and functions are ignored.
"""
import dataclasses
import re

LABELS = ("Shapes", "In place", "Units", "Order", "Lifetime", "Errors", "Threads", "Invariants", "Source")


@dataclasses.dataclass
class Doc:
    """A doc comment: the text before the first label, and the text after each label at the beginning of a line."""
    effect: str = ""
    sections: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Member:
    name: str
    type: str = ""
    default: str = ""
    doc: str = ""


@dataclasses.dataclass
class Declaration:
    kind: str  # "struct", "enum", "using" or, for a class with a base, "class"
    name: str
    doc: Doc
    members: list = dataclasses.field(default_factory=list)
    target: str = ""  # the aliased type of a using declaration, or the base of a class


def parse_doc(lines):
    doc, label, said = Doc(), None, []

    def close():
        paragraphs = "\n".join(said).strip().split("\n\n")
        text = "\n\n".join(" ".join(one.split("\n")) for one in paragraphs)
        if label is None:
            doc.effect = text
        else:
            doc.sections[label] = text

    for line in lines:
        found = re.match(rf"({'|'.join(LABELS)}): *(.*)", line)
        if found:
            close()
            label, said = found[1], [found[2]]
        else:
            said.append(line.strip())
    close()
    return doc


def split_comment(line):
    """Returns the code of a line and its trailing ///< comment."""
    code, _, comment = line.partition("///<")
    return re.sub(r"(?<!/)//(?!/).*", "", code).rstrip(), comment.strip()


FIELD = re.compile(r"(?P<type>[\w:<>, ]+?[>\w]) (?P<name>\w+) *(?:= *(?P<value>.+?)|(?P<braces>\{.*\}))?;$")


def parse_members(lines):
    """Returns the fields of a struct's body, without those of nested types, each with its comment above or behind."""
    members, above, depth, statement = [], [], 0, ""
    for line in lines:
        stripped = line.strip()
        if depth == 0 and not statement and stripped.startswith("///") and not stripped.startswith("///<"):
            above.append(stripped[3:].strip())
            continue
        code, behind = split_comment(stripped)
        if not code:
            if behind and members:  # continues the comment of the previous line
                members[-1].doc = f"{members[-1].doc} {behind}"
            elif not behind:
                above = []
            continue
        statement = f"{statement} {code}".strip()
        depth += code.count("{") - code.count("}")
        if depth > 0 or not statement.endswith((";", "}")):
            continue
        field = FIELD.match(statement)
        if field and not statement.startswith(("friend ", "static ")) and "(" not in statement.split("=")[0].split("{")[0]:
            default = field["value"] or ("{}" if field["braces"] else "")
            members.append(Member(field["name"], field["type"].strip(), default, behind or " ".join(above)))
        statement, above = "", []
    return members


def parse_enumerators(body):
    members = []
    for line in body.splitlines():
        code, behind = split_comment(line.strip())
        for name in re.findall(r"(\w+)(?: *= *\w+)? *(?:,|$)", code):
            members.append(Member(name, doc=behind))
    return members


def parse(text):
    """Returns the declarations of a header by name, in their order."""
    found, doc, lines, i = {}, [], text.splitlines(), 0
    while i < len(lines):
        line = lines[i]
        i += 1
        if line.startswith("///"):
            doc.append(line[3:].strip())
            continue
        begun = re.match(r"(?:(struct) (\w+) \{|(enum) class (\w+)[^{;]*\{|(using) (\w+) =|(class) (\w+)(?= *$| :))", line)
        if begun:
            kind, name = [part for part in begun.groups() if part]
            whole = line[begun.end():]
            closed = (lambda: whole.rstrip().endswith(";")) if kind == "using" else (
                lambda: whole.rstrip().endswith("};")) if kind == "class" else (
                lambda: whole.count("{") - whole.count("}") < 0)
            while not closed():
                whole += "\n" + lines[i]
                i += 1
            made = Declaration(kind, name, parse_doc(doc))
            body = whole[:whole.rindex("}")] if kind in ("struct", "enum") else ""
            if kind == "struct":
                made.members = parse_members(body.splitlines())
            elif kind == "enum":
                made.members = parse_enumerators(body)
            elif kind == "class":
                made.target = " ".join(re.match(r"\s*: public ([^{]*)\{", whole)[1].split())
            else:
                made.target = " ".join(whole.rstrip("; \n").split())
            found[name] = made
        doc = []
    return found
