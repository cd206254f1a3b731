"""Fixtures of the command line."""

from tests.support.cli import call, folder

__all__ = ("call", "folder")
