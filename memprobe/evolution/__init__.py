"""The evolution suite: facts that change over documents, and what a store makes of them.

Source: the published description of FEB-30; where it is silent or contradicts itself,
`docs/evolution-suite.md` tells what was chosen.
"""
