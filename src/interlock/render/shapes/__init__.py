"""The parts of a picture: boxes and wires, their geometry and the size of their texts."""
