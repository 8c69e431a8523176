"""The wire: the shim and its dialects, the embedded engine and its server, launching real ones."""
