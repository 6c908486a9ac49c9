"""A swarm in fast motion: devices that come and go, against the market's real rules and the real fold, in memory.

What is real: targets, prices, placement, the purse, grants and endings, every event and `market.fold`. What is played:
devices, downloads, the router's demand and the clock. `manage.py simulate market` runs it.
"""
