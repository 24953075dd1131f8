"""The local model: llama.cpp's server with a small model, installed on demand."""
