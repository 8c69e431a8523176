"""2048 and a to-do list as web pages: a HUD env package on a real browser."""
