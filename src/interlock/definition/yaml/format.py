"""The canonical format: one YAML document, one chart, in the vocabulary `interlock: 1`.

The work is in `yaml_read.py` (text to document) and `yaml_write.py` (document to text).
"""

from __future__ import annotations

from interlock.definition.format import Format
from interlock.definition.yaml.read import read_yaml
from interlock.definition.yaml.write import write_yaml

FORMAT = Format(
    name="yaml", suffixes=(".interlock.yaml", ".interlock.yml", ".yaml", ".yml"), read=read_yaml, write=write_yaml
)
