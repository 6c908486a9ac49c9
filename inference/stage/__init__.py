"""A stage as a process: `python -m inference.stage --model STAGE.gguf --listen HOST:PORT --secret FILE`.

It holds a run of layers and computes steps of rings over direct TCP. docs/stages.md tells how to run some.
"""
