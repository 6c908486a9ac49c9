"""`manage.py bench scale`: what more processes bring, and what a crowd of devices costs.

Requests and relay traffic through one and through two processes, events per second of one and of four writers on
PostgreSQL, 2,000 registered devices that poll for work. `bench` has the cases, `stack` the server's processes, `asker`
and `writer` are the clients, each a process that obeys.
"""
