"""The scorer in two forms.

`paper` reproduces the published rules, faults included; `strict` corrects them,
and its docstring lists each departure with an example. Both take a `Key` (what
is true) and the reader's text, and give a `Score`.
"""

from memprobe.paradigms.scoring.results import Key, Match, Score, key_of, score

__all__ = ["Key", "Match", "Score", "key_of", "score"]
