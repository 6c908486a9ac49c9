"""What the benchmarks of the throughput fabric measure on: the real data path, without the market.

A relay (the real consumer behind a door that takes a token's word for what it leased), expert workers with the code of
`inference.worker`, many to a process, TCP proxies that delay every byte, and a backbone: llama.cpp with our backend,
its lanes, dispatcher and relay link, driven step by step. Each is a process of its own.
"""
