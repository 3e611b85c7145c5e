"""The packages of the source, and the folders that they consist of."""
# The core's folders are layers, from the lowest.
CORE = ("device", "completion", "collectives", "actors", "runtime")
# The packages beside the core, and which of each other they may include.
PACKAGES = {"processes": (), "backends": (), "testing": ("processes",), "c": ("processes",),
            "program": ("processes", "backends", "testing")}
LAYERS = (*CORE, *PACKAGES)
ENDINGS = (".hpp", ".cpp", ".h", ".cu", ".cuh")


def sources_of(root, folder):
    """Returns the sources below this folder, sorted."""
    return sorted(path for path in (root / folder).rglob("*") if path.suffix in ENDINGS)
