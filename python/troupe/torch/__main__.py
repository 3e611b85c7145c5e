"""Builds the native part of the backend: see troupe.torch.build()."""
from ._native import build

if __name__ == "__main__":
    print(build())
