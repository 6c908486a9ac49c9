"""`manage.py bench relay`: what the relay costs beside bare consumers on the same server in the same run.

A server process (`server`: Daphne or uvicorn) has all of them: the relay's real consumer, behind a door that lets the
bench in; one that passes messages on between two clients unread; and an echo. Two client processes (`client`) with the
real protocol client drive them in turn. One round trip through the relay (backbone, relay, worker, relay, backbone)
takes the server two messages in and two out, and so does one through the consumer that passes on; an echo is half that.
docs/decisions/0007 says why the former is the peer.
"""
