"""Converts troupe's errors to those of torch.distributed."""
from __future__ import annotations

import datetime
from typing import NoReturn, Optional

import torch.distributed as dist

from .._errors import DeadlineExceeded, Error, InvalidArgument, StaleEpoch
from . import _records


_MILLISECOND = datetime.timedelta(milliseconds=1)


#: Errors of forming a group that have a class of their own, as those of PyTorch's rendezvous have: a process has not
#: come, or cannot be reached.
_OF_FORMING = {"deadline_exceeded": dist.DistStoreError, "missing": dist.DistNetworkError}


def failure_of(what: str, why: Error, deadline: Optional[datetime.timedelta] = None, advice: str = "", *,
               forms: bool = False) -> Exception:
    """Returns the exception that PyTorch's users catch; its cause is `why`, which has the code, the ranks and the effect.

    ValueError for a call that this rank made wrongly. All others are RuntimeErrors: DistBackendError for an outcome;
    while a group forms (`forms`) DistStoreError if processes have not come, DistNetworkError if the controller cannot be
    reached.
    """
    text = f"{what}: {why}{advice}"
    if isinstance(why, StaleEpoch) and advice:  # which takes the place of troupe's own
        text = f"{what}: {why.code}: the processes of the group have formed again (epoch {why.epoch}), and this one has not resumed{advice}"
    if isinstance(why, DeadlineExceeded) and deadline is not None:  # as gloo says it, because programs look for it
        text = f"{what}: Timed out waiting {deadline / _MILLISECOND:.0f}ms: {why}{advice}"
    if not forms and not isinstance(why, InvalidArgument):
        _records.failed()
    of_outcome = _OF_FORMING.get(why.code, dist.DistBackendError) if forms else dist.DistBackendError
    made: Exception = ValueError(text) if isinstance(why, InvalidArgument) else of_outcome(text)
    made.__cause__ = why
    return made


def not_yet(what: str, waited: datetime.timedelta) -> Exception:
    """Returns the error of a wait that has ended before the operation has."""
    made: Exception = dist.DistBackendError(
        f"{what}: Timed out waiting {waited / _MILLISECOND:.0f}ms in wait(): the operation has not ended; it continues, and "
        f"can be waited for again")
    return made


def refuse(call: str, reason: str) -> NoReturn:
    """Raises the error of a function of c10d that the backend does not have."""
    raise NotImplementedError(f"the backend troupe has no {call}: {reason} (docs/guide/torch.md)")
