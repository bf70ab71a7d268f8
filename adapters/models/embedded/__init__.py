"""The embedded profile: deterministic players, reader and judge, with no model behind them.

Good for comparing memory systems and for regression gates; not comparable with
figures judged by a language model.
"""
