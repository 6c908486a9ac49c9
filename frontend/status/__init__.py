"""`/status`: what everybody may know of the swarm: coverage, speed, incidents. No names of devices, no secrets."""
