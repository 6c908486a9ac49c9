"""Proof that the swarm computes what plain llama.cpp computes: recorded runs, replayed and compared bit by bit."""
