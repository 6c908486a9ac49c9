"""Speeds of the market on a real database: plain numbers, measured; `inference.benchmarks.market` reports them."""
