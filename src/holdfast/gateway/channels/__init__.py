"""The chat apps themselves, one module each; only these know an app's own client library."""
