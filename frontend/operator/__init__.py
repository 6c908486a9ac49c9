"""`/operator/`: what the person sees and does who runs the server. One module per page; staff only."""
