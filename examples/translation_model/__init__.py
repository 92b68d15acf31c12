"""The parts of examples/translation.py."""
