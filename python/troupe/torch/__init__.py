"""The backend "troupe" of torch.distributed: docs/guide/torch.md.

    torch.distributed.init_process_group("troupe")

PyTorch finds it by an entry point where the package is installed; elsewhere `import troupe.torch` registers it.
"""
import torch

_OLDEST = (2, 15)

if tuple(int(one) for one in torch.__version__.split(".")[:2]) < _OLDEST:
    raise ImportError(f"the backend troupe needs PyTorch {_OLDEST[0]}.{_OLDEST[1]} or newer, and this is {torch.__version__}: "
                      f"upgrade torch")
if not torch.distributed.is_available():
    raise ImportError(f"the backend troupe needs torch.distributed, and this PyTorch {torch.__version__} was built without it")

from ._backend import TroupeBackend  # noqa: E402
from ._copies import Copies, share  # noqa: E402
from ._graph import Graph, graph  # noqa: E402
from ._group import TroupeGroup, register  # noqa: E402
from ._native import build  # noqa: E402
from ._records import write_flight_record  # noqa: E402
from ._recovery import Resumed, commit, resume  # noqa: E402

__all__ = ["Copies", "Graph", "Resumed", "TroupeBackend", "TroupeGroup", "build", "commit", "graph", "register", "resume", "share",
           "write_flight_record"]

register()
