"""Scripted players and experts, and the demonstrations that a warm-up learns from."""
