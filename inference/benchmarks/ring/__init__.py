"""`bench ring`: rings of stages beside llama.cpp's RPC backend over as many processes, and beside plain llama.cpp."""
