"""The computer tool: one function through which a policy sees and drives a screen."""
