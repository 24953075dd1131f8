"""What can be changed while a server runs, and stays so: settings, the model that answers."""
