"""`manage.py hostile`: a hundred thousand malformed inputs, trespassers, thieves and floods against a real server.

`mutations` makes bad input from a seed (pure). `frames` and `gguf_files` feed it to what reads bytes of strangers, in a
process of its own with little memory (`confined`). `targets` lists every address, `tenants` are two accounts, `wire`
sends requests as raw bytes, `requests` fuzzes, `trespass` tries what belongs to others, `theft` uses stolen, ended and
replayed tokens, `sockets` are idle and flooding ones; `run` puts them together.
"""
