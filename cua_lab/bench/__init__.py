"""Measurements of the lab's own parts, each beside a plain way of doing the same."""
