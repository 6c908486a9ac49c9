"""`manage.py chaos`: a real server under churn, and the proof that nobody noticed.

`blows` says what happens when (pure), `processes` does it to real processes, `load` is the clients, `judge` the checks,
`run` puts them together. `liar_worker` is a worker that lies. Nothing here imports Django.
"""
