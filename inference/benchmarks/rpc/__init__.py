"""`manage.py bench rpc`: the swarm beside llama.cpp's own way to use other machines, its RPC backend."""
