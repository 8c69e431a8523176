"""The embedded engine: decoding, prefix cache, batching, sampling over the policy's own weights."""
