"""A ring of stages: the layers of one model on several strong nodes, hidden states passed from each to the next.

`steps` is the bytes, `journal` what every sequence has read, `context` a context whose decode goes around the ring.
Nothing here knows requests, claims, money or Django.
"""
