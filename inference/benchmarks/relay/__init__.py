"""`manage.py bench relay`: what the relay costs beside a bare echo on the same server in the same run.

A server process (`server`: Daphne or uvicorn) has both ends: the relay's real consumer, behind a door that lets the
bench in, and an echo that sends back what it gets and knows nothing else. Two client processes (`client`) drive them in
turn. One round trip through the relay (backbone, relay, worker, relay, backbone) takes the server two messages in and
two out; so do two echoes, which is what one round trip is compared with.
"""
