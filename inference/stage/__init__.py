"""A stage as a process: it holds a run of layers and computes steps of rings.

`python -m inference.stage --model STAGE.gguf --listen HOST:PORT --secret FILE` serves a file over direct TCP;
`python -m inference.stage --server URL` joins through the market and the relay. docs/stages.md tells how to run some.
"""
