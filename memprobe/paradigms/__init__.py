"""The paradigms suite: does a memory change when it should and stay when it should?

Episodes with their gold (`spec`), files and digests (`suite`), the protocol's tables
(`protocol`), the checks of a suite (`checks`), the expander of mini-specs (`expand`),
the scorer in two forms (`scoring`) and the metrics (`metrics`).
"""
