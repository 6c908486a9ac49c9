"""`manage.py doctor`: looks at a deployment as it runs and says what to do about what it finds.

`findings` is the vocabulary; `stores`, `queues`, `reach` and `host` look, each at one kind of thing; `examine` calls
them all. A look never raises and never changes anything.
"""
