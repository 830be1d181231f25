"""The paper, and nothing else: equations 1-11 and Algorithm 1 as pure functions, plus one thin module."""
