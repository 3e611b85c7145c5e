"""Runs pytest on the files named, or says what is missing: exit status 77, which CTest shows as skipped."""
import sys

try:
    import numpy  # noqa: F401
    import pytest
except ImportError as why:
    print(f"skipped: {why}: install python3-numpy and python3-pytest")
    sys.exit(77)
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
