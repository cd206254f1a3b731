"""The smcat format: state-machine-cat's language, read and written."""

from __future__ import annotations

from interlock.definition.format import Format
from interlock.definition.smcat.read import read_smcat
from interlock.definition.smcat.write import write_smcat

FORMAT = Format(name="smcat", suffixes=(".smcat",), read=read_smcat, write=write_smcat)
