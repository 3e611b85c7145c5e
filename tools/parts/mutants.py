"""Finds with libclang what can be changed in a source file, and writes a copy that contains all changes at once, each
selected by a number at run time."""
import importlib.util
import pathlib
import re
import sys

try:
    if importlib.util.find_spec("clang") is None:  # another Python than the distribution's
        sys.path.append("/usr/lib/python3/dist-packages")
    from clang import cindex
    from clang.cindex import CursorKind as Kind
    from clang.cindex import TypeKind
except ImportError:
    sys.exit("mutate: Python's clang module is missing: on Debian and Ubuntu install python3-clang-14")

GENERATOR = 1  # Another number discards what earlier versions have made.

# What the copies include. A condition, a number or a statement asks whether it is the active one, and notes in a shared
# file that it was reached.
HEADER = r"""#pragma once
extern "C" {
extern int troupe_active_mutant;
extern unsigned char* troupe_reached_mutants;
}
namespace troupe_mutants {
inline bool is(int id) noexcept {
  if (troupe_reached_mutants != nullptr) troupe_reached_mutants[id] = 1;
  return troupe_active_mutant == id;
}
inline bool condition(int negated, int always, int never, bool value) noexcept {
  if (troupe_reached_mutants != nullptr) {
    if (negated != 0) troupe_reached_mutants[negated] = 1;
    if (always != 0) troupe_reached_mutants[always] = 1;
    if (never != 0) troupe_reached_mutants[never] = 1;
  }
  const int active = troupe_active_mutant;
  if (active == 0) return value;
  return active == negated ? !value : active == always ? true : active == never ? false : value;
}
template <class T>
T number(int more, int less, T value) noexcept {
  if (troupe_reached_mutants != nullptr) troupe_reached_mutants[more] = troupe_reached_mutants[less] = 1;
  if (troupe_active_mutant == more) return static_cast<T>(value + T{1});
  if (troupe_active_mutant == less) return static_cast<T>(value - T{1});
  return value;
}
struct once {
  int id;
  bool first = true;
  bool more() noexcept {
    if (!first && is(id)) return false;
    first = false;
    return true;
  }
};
} // namespace troupe_mutants
"""

SWITCH = r"""#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
extern "C" {
int troupe_active_mutant = 0;
unsigned char* troupe_reached_mutants = nullptr;
__attribute__((constructor(101))) static void troupe_choose_mutant() {
  if (const char* const id = std::getenv("TROUPE_MUTANT")) troupe_active_mutant = std::atoi(id);
  if (const char* const path = std::getenv("TROUPE_MUTANTS_REACHED")) {
    const int file = ::open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    const long size = ::lseek(file, 0, SEEK_END);
    void* const map = ::mmap(nullptr, static_cast<unsigned long>(size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (map != MAP_FAILED) troupe_reached_mutants = static_cast<unsigned char*>(map);
  }
}
}
"""

FUNCTIONS = {Kind.FUNCTION_DECL, Kind.CXX_METHOD, Kind.CONSTRUCTOR, Kind.DESTRUCTOR, Kind.CONVERSION_FUNCTION,
             Kind.FUNCTION_TEMPLATE}
STATEMENTS = {Kind.COMPOUND_STMT, Kind.IF_STMT, Kind.WHILE_STMT, Kind.FOR_STMT, Kind.DO_STMT, Kind.SWITCH_STMT,
              Kind.CASE_STMT, Kind.DEFAULT_STMT, Kind.DECL_STMT, Kind.NULL_STMT, Kind.CXX_TRY_STMT, Kind.CXX_CATCH_STMT,
              Kind.CXX_FOR_RANGE_STMT, Kind.RETURN_STMT, Kind.BREAK_STMT, Kind.CONTINUE_STMT, Kind.GOTO_STMT}
LEAVES = {Kind.RETURN_STMT, Kind.BREAK_STMT, Kind.CONTINUE_STMT}
NEVER_IN = {Kind.STATIC_ASSERT, Kind.ENUM_DECL, Kind.TYPE_ALIAS_DECL, Kind.TYPEDEF_DECL, Kind.ANNOTATE_ATTR,
            Kind.TEMPLATE_TYPE_PARAMETER, Kind.TEMPLATE_NON_TYPE_PARAMETER, Kind.USING_DECLARATION}


class Mutant:
    """One change: what a reader is told about it, and its number."""

    def __init__(self, kind, start, end, before, after):
        self.kind, self.start, self.end, self.before, self.after = kind, start, end, before, after
        self.id = 0


class Wrapper:
    """Text put around [start, end) of the file, with the mutants that it can turn on."""

    def __init__(self, start, end, mutants, texts):
        self.start, self.end, self.mutants, self.texts = start, end, mutants, texts
        self.shown = []  # ranges of the written file that this wrapper covers


def shorten(text, most=110):
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= most else text[:most - 1] + "…"


class Source:
    """A parsed source file and its wrappers."""

    def __init__(self, path, arguments):
        self.path = pathlib.Path(path)
        self.text = self.path.read_bytes()
        self.wrappers = []
        index = cindex.Index.create()
        self.unit = index.parse(str(path), args=arguments,
                                options=cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
        errors = [d for d in self.unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
        if errors:
            raise RuntimeError(f"{path} cannot be parsed: {errors[0]}")
        self.macros = []
        top = []
        for cursor in self.unit.cursor.get_children():
            if cursor.location.file is None or cursor.location.file.name != str(path):
                continue
            if cursor.kind == Kind.MACRO_INSTANTIATION:
                self.macros.append((cursor.extent.start.offset, cursor.extent.end.offset))
            elif not cursor.kind.is_preprocessing():
                top.append(cursor)
        for cursor in top:
            self.visit(cursor, None)

    # What is seen of the text.

    def slice(self, start, end):
        return self.text[start:end].decode("utf-8", "replace")

    def line_of(self, offset):
        return self.text.count(b"\n", 0, offset) + 1

    def skip_blank(self, at):
        while True:
            while at < len(self.text) and self.text[at:at + 1].isspace():
                at += 1
            if self.text[at:at + 2] == b"//":
                at = self.text.index(b"\n", at)
            elif self.text[at:at + 2] == b"/*":
                at = self.text.index(b"*/", at) + 2
            else:
                return at

    def end_of(self, cursor):
        """Returns where a statement ends, with its semicolon."""
        end = cursor.extent.end.offset
        if self.text[end - 1:end] in (b"}", b";"):
            # An expression may end with a brace, and a semicolon follows.
            if cursor.kind in STATEMENTS and cursor.kind not in LEAVES and cursor.kind != Kind.DO_STMT:
                last = self.last_statement(cursor)
                if last is None or last == cursor:
                    return end
                return max(end, self.end_of(last))
            if self.text[end - 1:end] == b";":
                return end
        elif cursor.kind in STATEMENTS and cursor.kind not in LEAVES and cursor.kind != Kind.DO_STMT:
            last = self.last_statement(cursor)
            if last is not None and last != cursor:
                return self.end_of(last)
        at = self.skip_blank(end)
        return at + 1 if self.text[at:at + 1] == b";" else end

    @staticmethod
    def last_statement(cursor):
        children = list(cursor.get_children())
        return children[-1] if children else None

    def in_macro(self, start, end):
        """Whether a range is in an expansion of a macro, or cuts one."""
        for first, last in self.macros:
            if first < end and start < last and not (start <= first and last <= end and (start, end) != (first, last)):
                return True
        return False

    def parentheses(self, at):
        """Returns the range inside the parentheses that open at or after AT, and its parts between semicolons."""
        at = self.text.index(b"(", at)
        depth, i, cuts = 0, at, []
        while True:
            c = self.text[i:i + 1]
            if c == b'"' or (c == b"'" and not self.text[i - 1:i].isalnum()):
                i += 1
                while self.text[i:i + 1] != c:
                    i += 2 if self.text[i:i + 1] == b"\\" else 1
            elif self.text[i:i + 2] in (b"//", b"/*"):
                i = self.skip_blank(i) - 1
            elif c in b"([{":
                depth += 1
            elif c in b")]}":
                depth -= 1
                if depth == 0:
                    break
            elif c == b";" and depth == 1:
                cuts.append(i)
            i += 1
        edges = [at, *cuts, i]
        return [(edges[k] + 1, edges[k + 1]) for k in range(len(edges) - 1)]

    # What can be changed.

    def add(self, start, end, kinds, texts):
        """Adds a wrapper. KINDS are triples of kind, old text and new text; TEXTS are written around the range."""
        if start >= end or self.in_macro(start, end):
            return
        mutants = [Mutant(kind, start, end, shorten(before), shorten(after)) for kind, before, after in kinds]
        self.wrappers.append(Wrapper(start, end, mutants, texts))

    def add_condition(self, start, end, wanted):
        text = self.slice(start, end).strip()
        while self.text[start:start + 1].isspace():
            start += 1
        while self.text[end - 1:end].isspace():
            end -= 1
        if start >= end or text in ("true", "false"):
            return
        shown = {"negated": f"!({text})", "true": "true", "false": "false"}
        kinds = [(f"condition {one}", text, shown[one]) for one in wanted]

        def texts(ids):
            numbers = [ids.get(f"condition {one}", 0) for one in ("negated", "true", "false")]
            return (f"::troupe_mutants::condition({numbers[0]}, {numbers[1]}, {numbers[2]}, static_cast<bool>(", "))")
        self.add(start, end, kinds, texts)

    def add_drop(self, cursor):
        start, end = cursor.extent.start.offset, self.end_of(cursor)
        before = self.slice(start, end)
        self.add(start, end, [("statement dropped", before, "")],
                 lambda ids: (f"{{ if (!::troupe_mutants::is({ids['statement dropped']})) ", " }"))

    def add_return(self, body, returned, shown):
        start = body.extent.start.offset
        self.add(start, start + 1, [("early return", f"{shown} {{", f"{shown} {{ {returned};")],
                 lambda ids: ("", f" if (::troupe_mutants::is({ids['early return']})) {returned};"))

    def words_before(self, cursor, end):
        return self.slice(cursor.extent.start.offset, end)

    def visit_function(self, cursor):
        children = list(cursor.get_children())
        body = next((c for c in children if c.kind == Kind.COMPOUND_STMT), None)
        if body is None:
            return
        head = self.words_before(cursor, body.extent.start.offset)
        if re.search(r"\b(constexpr|consteval)\b", head):
            return
        is_lambda = cursor.kind == Kind.LAMBDA_EXPR
        inner = list(body.get_children())
        if is_lambda:
            returns = self.returns_value(body)
            returned = "return {}" if returns else "return"
            is_bool = bool(re.search(r"->\s*bool\s*$", head))
        else:
            result = cursor.result_type.get_canonical().kind
            returns = result not in (TypeKind.VOID, TypeKind.INVALID) and cursor.kind not in (Kind.CONSTRUCTOR, Kind.DESTRUCTOR)
            returned = "return {}" if returns else "return"
            is_bool = result == TypeKind.BOOL
        single = len(inner) == 1
        trivial = not inner or (single and (
            (not returns and self.can_drop(inner[0]) or
             returns and inner[0].kind == Kind.RETURN_STMT and self.slice(*self.range_of(inner[0])).split(None, 1)[-1:] in
             (["{}"], ["false"], ["0"], ["nullptr"]))))
        if not trivial:
            shown = shorten(re.split(r"[\n{]", self.slice(cursor.extent.start.offset, body.extent.start.offset))[0], 70)
            self.add_return(body, returned, shown)
        place = {"value": returns, "bool": is_bool}
        for child in children:
            if child.kind == Kind.COMPOUND_STMT:
                self.visit_block(child, place, tail=True)
            elif child.kind != Kind.PARM_DECL:
                self.visit(child, place)

    def range_of(self, cursor):
        return cursor.extent.start.offset, cursor.extent.end.offset

    def returns_value(self, cursor):
        for child in cursor.get_children():
            if child.kind == Kind.LAMBDA_EXPR or child.kind in FUNCTIONS:
                continue
            if child.kind == Kind.RETURN_STMT and list(child.get_children()):
                return True
            if self.returns_value(child):
                return True
        return False

    @staticmethod
    def can_drop(cursor):
        return cursor.kind not in STATEMENTS and cursor.kind.is_expression()

    def visit_block(self, block, place, tail):
        children = list(block.get_children())
        for i, child in enumerate(children):
            self.visit_statement(child, place, tail and i + 1 == len(children))

    def visit_statement(self, cursor, place, tail):
        """Visits one statement. TAIL says that nothing of the function follows it."""
        kind = cursor.kind
        start = cursor.extent.start.offset
        if self.in_macro(start, cursor.extent.end.offset):
            return
        if kind == Kind.COMPOUND_STMT:
            self.visit_block(cursor, place, tail)
        elif kind == Kind.IF_STMT:
            self.visit_if(cursor, place, tail)
        elif kind == Kind.WHILE_STMT:
            self.visit_while(cursor, place)
        elif kind == Kind.FOR_STMT:
            parts = self.parentheses(start)
            if len(parts) == 3:
                self.add_condition(*parts[1], ("false",))
            self.visit_parts(cursor, place)
        elif kind == Kind.CXX_FOR_RANGE_STMT:
            self.add_drop(cursor)
            self.visit_parts(cursor, place)
        elif kind == Kind.DO_STMT:
            children = list(cursor.get_children())
            self.visit_statement(children[0], place, False)
            self.add_condition(*self.range_of(children[1]), ("false",))
            self.visit(children[1], place)
        elif kind == Kind.SWITCH_STMT:
            children = list(cursor.get_children())
            for child in children[:-1]:
                self.visit(child, place)
            self.visit_block(children[-1], place, tail) if children[-1].kind == Kind.COMPOUND_STMT else None
        elif kind == Kind.CASE_STMT:
            children = list(cursor.get_children())
            self.visit_statement(children[-1], place, tail)
        elif kind == Kind.DEFAULT_STMT:
            for child in cursor.get_children():
                self.visit_statement(child, place, tail)
        elif kind in (Kind.CXX_TRY_STMT, Kind.CXX_CATCH_STMT):
            for child in cursor.get_children():
                if child.kind.is_statement():
                    self.visit_statement(child, place, tail)
        elif kind in LEAVES:
            if kind != Kind.RETURN_STMT or not (tail and place["value"]):
                if not (kind == Kind.RETURN_STMT and tail):
                    self.add_drop(cursor)
            children = list(cursor.get_children())
            if kind == Kind.RETURN_STMT and place["bool"] and children:
                self.add_condition(*self.range_of(children[0]), ("negated",))
            for child in children:
                self.visit(child, place)
        elif kind == Kind.DECL_STMT:
            for child in cursor.get_children():
                self.visit(child, place)
        elif kind == Kind.CXX_THROW_EXPR:
            if not (tail and place["value"]):
                self.add_drop(cursor)
            self.visit_children(cursor, place)
        elif self.can_drop(cursor):
            self.add_drop(cursor)
            self.visit(cursor, place)
        else:
            self.visit_children(cursor, place)

    def visit_parts(self, cursor, place):
        """Visits the children of a loop: its body is a statement."""
        children = list(cursor.get_children())
        for child in children[:-1]:
            self.visit_children(child, place) if child.kind == Kind.DECL_STMT else self.visit(child, place)
        self.visit_statement(children[-1], place, False)

    def condition_variable(self, children, start, end):
        """Returns the variable that the condition in [start, end) declares."""
        for child in children:
            first, last = self.range_of(child)
            if start <= first and last <= end and child.kind in (Kind.VAR_DECL, Kind.DECL_STMT):
                if child.kind == Kind.DECL_STMT:
                    child = next(child.get_children())
                return child.spelling or None
        return None

    def visit_if(self, cursor, place, tail):
        start = cursor.extent.start.offset
        children = list(cursor.get_children())
        if re.match(rb"if\s+constexpr", self.text[start:start + 30]):
            for child in children:
                if child.kind.is_statement():
                    self.visit_statement(child, place, tail)
            return
        parts = self.parentheses(start)
        first, last = parts[-1]
        inside = [c for c in children if c.extent.start.offset < last]
        branches = [c for c in children if c.extent.start.offset >= last]
        variable = self.condition_variable(inside, first, last)
        body = branches[0]
        while body.kind == Kind.COMPOUND_STMT and len(list(body.get_children())) == 1:
            body = next(body.get_children())
        # Without its only statement, an `if` is the same as with a condition that is always false.
        droppable = self.can_drop(body) or body.kind in LEAVES and not (tail and place["value"])
        wanted = ("negated", "true") if len(branches) == 1 and droppable else ("negated", "true", "false")
        if variable is None:
            self.add_condition(first, last, wanted)
        else:
            text = self.slice(first, last).strip()
            kinds = [(f"condition {one}", text, f"!({text})" if one == "negated" else one) for one in wanted]

            def texts(ids):
                numbers = [ids.get(f"condition {one}", 0) for one in ("negated", "true", "false")]
                return ("", f"; ::troupe_mutants::condition({numbers[0]}, {numbers[1]}, {numbers[2]}, "
                            f"static_cast<bool>({variable}))")
            self.add(first, last, kinds, texts)
        for child in inside:
            self.visit_children(child, place) if child.kind == Kind.DECL_STMT else self.visit(child, place)
        for child in branches:
            self.visit_statement(child, place, tail)

    def visit_while(self, cursor, place):
        start, end = cursor.extent.start.offset, self.end_of(cursor)
        (first, last), *more = self.parentheses(start)
        children = list(cursor.get_children())
        if not more and self.condition_variable(children[:-1], first, last) is None:
            condition = self.slice(first, last)
            self.add_condition(first, last, ("false",))
            name = f"troupe_once_{start}"
            ids = {}

            def outer(given):
                ids.update(given)
                return f"{{ ::troupe_mutants::once {name}{{{given['while to if']}}}; ", " }"
            self.add(start, end, [("while to if", f"while ({condition})", f"if ({condition})")], outer)
            whole = self.wrappers[-1] if self.wrappers and self.wrappers[-1].texts is outer else None
            if whole is not None:
                inner = Wrapper(first, last, [], lambda _: (f"{name}.more() && (", ")"))
                inner.needs = whole
                self.wrappers.append(inner)
        for child in children[:-1]:
            self.visit(child, place)
        self.visit_statement(children[-1], place, False)

    def visit_children(self, cursor, place):
        for child in cursor.get_children():
            self.visit(child, place)

    def visit(self, cursor, place):
        """Visits a declaration or an expression."""
        kind = cursor.kind
        start, end = self.range_of(cursor)
        if kind in NEVER_IN:
            return
        if kind in FUNCTIONS or kind == Kind.LAMBDA_EXPR:
            self.visit_function(cursor)
            return
        if kind == Kind.COMPOUND_STMT:
            self.visit_block(cursor, place or {"value": True, "bool": False}, True)
            return
        if kind in STATEMENTS and kind != Kind.DECL_STMT:
            self.visit_statement(cursor, place or {"value": True, "bool": False}, True)
            return
        if kind in (Kind.VAR_DECL, Kind.FIELD_DECL):
            name = self.text.find(cursor.spelling.encode(), start, end)
            if re.search(r"\b(constexpr|constinit)\b", self.slice(start, max(start, name))):
                return
            children = list(cursor.get_children())
            if kind == Kind.VAR_DECL and place and children and cursor.type.get_canonical().kind == TypeKind.BOOL:
                last = children[-1]
                if last.kind.is_expression() and last.kind != Kind.INIT_LIST_EXPR:
                    self.add_condition(*self.range_of(last), ("negated",))
        elif kind in (Kind.INTEGER_LITERAL, Kind.FLOATING_LITERAL):
            text = self.slice(start, end)
            if re.fullmatch(r"[0-9][0-9a-zA-Z'.]*", text):
                def texts(ids):
                    return f"::troupe_mutants::number({ids['constant + 1']}, {ids['constant - 1']}, ", ")"
                self.add(start, end, [("constant + 1", text, f"{text} + 1"), ("constant - 1", text, f"{text} - 1")], texts)
            return
        elif kind == Kind.CXX_BOOL_LITERAL_EXPR:
            text = self.slice(start, end)
            if text in ("true", "false"):
                other = "false" if text == "true" else "true"
                self.add(start, end, [("constant negated", text, other)],
                         lambda ids: (f"::troupe_mutants::condition({ids['constant negated']}, 0, 0, ", ")"))
            return
        elif kind == Kind.BINARY_OPERATOR:
            children = list(cursor.get_children())
            if len(children) == 2:
                between = self.slice(children[0].extent.end.offset, children[1].extent.start.offset)
                operator = re.sub(r"[()\s]", "", between)
                if operator in ("&&", "||"):
                    for child in children:
                        self.add_condition(*self.range_of(child), ("true",) if operator == "&&" else ("false",))
        elif kind == Kind.CONDITIONAL_OPERATOR:
            children = list(cursor.get_children())
            if len(children) == 3:
                self.add_condition(*self.range_of(children[0]), ("negated",))
        self.visit_children(cursor, place)

    # The copy with all mutants.

    def written(self, kept, include):
        """Returns the text with the wrappers KEPT; their mutants have numbers."""
        opens, closes = {}, {}
        order = sorted(kept, key=lambda w: (w.start, -w.end))
        for wrapper in order:
            before, after = wrapper.texts({mutant.kind: mutant.id for mutant in wrapper.mutants})
            opens.setdefault(wrapper.start, []).append((wrapper, before))
            # Inner ones are closed first: they come later in the order.
            closes.setdefault(wrapper.end, []).insert(0, (wrapper, after))
            wrapper.shown = []
        out, at, length = [], 0, 0

        def put(piece):
            nonlocal length
            out.append(piece)
            length += len(piece)
        put(f'#include "{include}"\n'.encode())
        begun = {}
        for where in sorted({*opens, *closes}):
            put(self.text[at:where])
            at = where
            for wrapper, after in closes.get(where, ()):
                put(after.encode())
                wrapper.shown = [(begun[id(wrapper)], length)]
            for wrapper, before in opens.get(where, ()):
                begun[id(wrapper)] = length
                put(before.encode())
        put(self.text[at:])
        return b"".join(out)


def innermost(kept, offset):
    """Returns the smallest wrapper of KEPT that was written around OFFSET."""
    found = None
    for wrapper in kept:
        for first, last in wrapper.shown:
            if first <= offset <= last and (found is None or last - first < found[0]):
                found = (last - first, wrapper)
    return found[1] if found else None


def within(kept, first, last):
    """Returns the wrappers of KEPT that were written within [FIRST, LAST)."""
    return [one for one in kept if any(first <= begin and end <= last for begin, end in one.shown)]


def line_starts(text):
    starts = [0]
    for match in re.finditer(b"\n", text):
        starts.append(match.end())
    return starts
