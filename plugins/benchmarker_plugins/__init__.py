"""Built-in plugins; they enter by the same entry points as anyone's."""
