"""`manage.py up`: what to start (`plan`), one process (`child`), all of them (`supervise`), in which order (`launch`).

`run_file` is what other commands read to find the running server. Nothing here imports Django.
"""
