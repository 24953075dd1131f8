"""The local model: llama.cpp's server as a child of ours, with a small model, installed on demand."""
