"""The OpenAI-compatible API at /v1/.

`parameters` (what was asked) < `prompts`, `chat_template` (tokens) < `submission` (limits, jobs, queue) < `views`;
`answers` writes what is sent back, `events` sends it as it comes. docs/api.md tells what a client sees.
"""
