"""The expert worker: enrols with a server, downloads the slices it claimed, and computes experts for the backbone.

`python -m inference.worker --server URL` needs numpy, gguf, httpx, websockets and tqdm (and llama-cpp-python for the
ggml kernel); it never imports Django. `lifecycle.py` is the whole; the other modules are its parts:

    program.py        logging, signals, exit codes
    options.py        the command line
    identity.py       the state folder: one node, with its token, per server and state folder
    market_client.py  the server's HTTP API
    claim_plan.py     what to do about claims: pure decisions
    download.py       slices over HTTP, in pieces that are verified one by one
    slice_store.py    slices on disk
    holdings.py       slices in memory: open kernels, with the claims they belong to
    kernels.py        which kernel computes
    relay_link.py     the connection to the relay
    serve.py          requests from the relay: check, compute, answer
    pacing.py         waiting that a stop cuts short, signs of life meanwhile
    progress.py       the progress bar of a download
    errors.py         what can go wrong, for the owner's eyes
"""
