"""The built-in demonstration data: the documentation of Python and numpy, questions, and labels."""
