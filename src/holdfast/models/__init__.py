"""Models: one folder per wire protocol, the scripted demo, the local model, and the choice between them."""
