"""The parts of examples/deepfm.py."""
