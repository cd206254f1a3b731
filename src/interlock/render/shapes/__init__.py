"""What a drawing consists of: boxes and wires, their geometry and the size of their texts."""
