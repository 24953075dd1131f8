"""Models: one file per wire protocol, the scripted demo, and the choice between them."""
