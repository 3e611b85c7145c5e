"""Reads <troupe/troupe.h>: its functions, structs and numbers."""
import ctypes
import re


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


class Header:
    """What a header declares.

    functions: name → (result, [parameter type]), as text. structs: name → [(type, field, array length or None)] of those that
    are no handles. numbers: enumerators and macros that are whole numbers.
    """

    def __init__(self, path):
        text = without_comments(path.read_text(encoding="utf-8"))
        self.numbers = {name: int(value) for name, value in re.findall(r"^\s*(TROUPE_\w+) = (-?\d+)", text, re.M)}
        self.numbers.update((name, int(value)) for name, value in re.findall(r"^#define (TROUPE_\w+) (\d+)$", text, re.M))
        self.functions = {}
        for result, name, parameters in re.findall(r"^TROUPE_API ([\w\s*]+?)\b(troupe_\w+)\((.*?)\);", text, re.M | re.S):
            every = [] if parameters.strip() == "void" else split_parameters(parameters)
            self.functions[name] = (result.strip(), [type_of(one) for one in every])
        self.structs = {}
        for body, name in re.findall(r"^typedef struct troupe_\w+ \{(.*?)^\} (troupe_\w+);", text, re.M | re.S):
            self.structs[name] = [(type_of(one), name_of(one)) for one in body.split(";") if one.strip()]

    def layout(self, name, known=None):
        """Returns the struct as a class of ctypes."""
        known = {} if known is None else known
        if name not in known:
            fields = [(field, self.ctype(kind, known)) for kind, field in self.structs[name]]
            known[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
        return known[name]

    def ctype(self, kind, known):
        plain = kind.replace("const ", "").strip()
        if plain in self.structs:
            return self.layout(plain, known)
        if "*" in plain or plain.endswith("_callback"):
            return ctypes.c_char_p if kind == "const char*" else ctypes.c_void_p
        numbers = {"size_t": ctypes.c_size_t, "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64,
                   "uint64_t": ctypes.c_uint64}
        return numbers.get(plain, ctypes.c_int32)  # troupe_code and the like


def split_parameters(text):
    """Splits at the commas outside of parentheses."""
    return re.split(r",\s*(?![^()]*\))", text.strip())


def name_of(declaration):
    found = re.search(r"\(\*(\w+)\)", declaration)
    return found[1] if found else re.search(r"(\w+)(\[\w+\])?\s*$", declaration)[1]


def type_of(declaration):
    """Returns the type of a declaration in one spelling: "const troupe_buffer* const*"."""
    text = " ".join(declaration.split())
    if "(*" in text:
        return re.sub(r"\(\*\w+\)", "(*)", text)
    text = re.sub(r"\bstruct ", "", re.sub(r"\s*\w+(\[\w+\])?\s*$", lambda found: "*" if found[1] else "", text))
    return re.sub(r"\s*\*", "*", text).strip()
