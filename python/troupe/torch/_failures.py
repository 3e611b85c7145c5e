"""Converts troupe's errors to those of torch.distributed."""
from __future__ import annotations

import datetime
from typing import NoReturn, Optional

import torch.distributed as dist

from .._errors import DeadlineExceeded, Error, InvalidArgument


_MILLISECOND = datetime.timedelta(milliseconds=1)


def failure_of(what: str, why: Error, deadline: Optional[datetime.timedelta] = None, advice: str = "") -> Exception:
    """Returns the exception that PyTorch's users catch; its cause is `why`, which has the code, the ranks and the effect.

    DistBackendError, a RuntimeError, for an outcome; ValueError for a call that this rank made wrongly.
    """
    text = f"{what}: {why}{advice}"
    if isinstance(why, DeadlineExceeded) and deadline is not None:  # as gloo says it, because programs look for it
        text = f"{what}: Timed out waiting {deadline / _MILLISECOND:.0f}ms: {why}{advice}"
    made: Exception = ValueError(text) if isinstance(why, InvalidArgument) else dist.DistBackendError(text)
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
