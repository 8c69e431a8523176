"""Importing this module registers every command group on the app."""
