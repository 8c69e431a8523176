"""The embedded engine: decoding, prefix cache, batching and sampling over the policy's own weights."""
