"""Threads that stores use: waking event loops, blocking calls off the loop, who commits inline."""
