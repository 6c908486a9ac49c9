"""The expert worker: enrols with a server, downloads the slices it claimed, and computes experts for the backbone.

`python -m inference.worker --server URL` needs numpy, gguf, httpx, websockets and tqdm (and llama-cpp-python for the
ggml kernel); it never imports Django. `lifecycle.py` is the whole; the other modules are its parts:

    options.py        the command line
    identity.py       the state folder: one node, with its token, per server and state folder
    market_client.py  the server's HTTP API
    download.py       slices over HTTP, in pieces that are verified one by one
    slice_store.py    slices on disk
    holdings.py       slices in memory: open kernels, with the claims they belong to
    serve.py          requests from the relay: check, compute, answer
"""
