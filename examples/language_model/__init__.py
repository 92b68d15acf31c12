"""The parts of examples/word_language_model.py."""
